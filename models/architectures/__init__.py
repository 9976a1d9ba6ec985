"""Networks: reading a configuration, lowering it to operators, and counting what it stores."""

from models.architectures.config import load_network, network_names, read_network
from models.architectures.families import ARCHITECTURES
from models.architectures.lowered import LoweredNetwork
from models.architectures.lowering import lower
from models.architectures.network import Network

__all__ = ["ARCHITECTURES", "LoweredNetwork", "Network", "load_network", "lower", "network_names", "read_network"]
