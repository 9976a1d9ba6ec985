"""Time of a GEMM, C[m, n] = A[m, k] B[k, n]: on-chip cycles of the best tiling, memory traffic, and both together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, require_at_least, require_positive
from models.hardware.design import DesignBatch, macs_per_cycle_per_core
from models.operators.gemm_constants import GemmConstants, gemm_constants
from models.operators.smooth import smooth_excess, smooth_maximum
from models.operators.tiling import (
    ACCUMULATOR_BYTES,
    SPLITS,
    TILE_SIDES,
    ShapeTiles,
    k_per_step,
    shape_tiles,
    tile_cost,
    tile_fits,
)
from models.operators.tiling_kernel import least_cycles
from models.tables import constants as constants_of


def onchip_cycles(
    designs: DesignBatch,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    operand_bytes: ArrayLike,
    rate_ratio: ArrayLike,
    constants: GemmConstants | None = None,
    splits: tuple[int, ...] = SPLITS,
    tiles: ShapeTiles | None = None,
) -> FloatArray:
    """
    Return the core cycles of the fastest tiling, main memory and power aside.

    Least over tile rows, tile columns and split of k of

        waves * (steps of k * cycles a step + exposed operand bytes / port + tile overhead) + cost of the split

    where waves = max(1, a ceil(w) + (1 - a) w) with w tiles per core. Operands cross the port of the core once a
    tile; where nothing is copied in bulk beside computing none of it is hidden behind the arrays, and with R
    multiply-accumulates a cycle and core this is the factor 1 + h (1/rows + 1/columns), h = R bytes / port. The
    inner loop is never shorter than the port needs, nor than the staged slices of k take, which dot-product arrays
    (array_k > 1) synchronise and streaming ones do not. The result depends on neither clock, shared buffer, main
    memory nor power cap, and more cores, arrays, scratchpad or port never raise it.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs entries.
    m, n, k : arrays of shape (n_shapes,)
        Sizes. [1]
    operand_bytes : array of shape (n_shapes,)
        Bytes per element of the operands as they reach the core. [B]
    rate_ratio : array of shape (n_shapes,) or (n_designs, n_shapes)
        Speed of the format over bf16. [1]
    constants : GemmConstants, optional
        The global set where left out.
    splits : tuple of int, optional
        Parts into which k may be cut; (1,) for kernels that never cut it.
    tiles : ShapeTiles, optional
        Of these shapes and splits, where they are known already.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Cycles of the core clock. [1]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> cycles = onchip_cycles(reference_design(), [4096.0], [4096.0], [4096.0], [2.0], [1.0])
    >>> bool(cycles[0, 0] > 4096**3 / (64 * 4096))
    True
    """
    used = constants or gemm_constants()
    sizes = [np.atleast_1d(require_at_least(name, v, 1)) for name, v in (("m", m), ("n", n), ("k", k))]
    element_bytes = np.atleast_1d(require_positive("operand_bytes", operand_bytes, "B"))
    ratio = np.atleast_1d(require_positive("rate_ratio", rate_ratio, "1"))
    n_shapes = max(values.shape[-1] for values in (*sizes, element_bytes, ratio))
    ratio = np.broadcast_to(ratio, (designs.n_designs if ratio.ndim == 2 else 1, n_shapes))
    m, n, k, element_bytes = (
        np.ascontiguousarray(np.broadcast_to(values, (n_shapes,))) for values in (*sizes, element_bytes)
    )
    return _least_cycles(designs, m, n, k, element_bytes, ratio, used, splits, tiles or shape_tiles(m, n, k, splits))


def _least_cycles(
    designs: DesignBatch,
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    element_bytes: FloatArray,
    rate_ratio: FloatArray,
    constants: GemmConstants,
    splits: tuple[int, ...],
    tiles: ShapeTiles,
) -> FloatArray:
    """Least cycles over all tilings, from factors of design and tile, and of shape and tile."""
    cost = tile_cost(designs, constants)
    old = designs.bulk_async_copy == 0
    overhead = np.where(old, constants.tile_cycles_without_bulk_copy, constants.tile_cycles)
    shape = (designs.n_designs, len(m))
    return least_cycles(
        *shape,
        np.ascontiguousarray(np.broadcast_to(k_per_step(designs)[:, None] * rate_ratio, shape)),
        np.ascontiguousarray(
            np.broadcast_to(rate_loss(rate_ratio, constants) / constants.array_efficiency_fraction, shape)
        ),
        designs.noc_bytes_per_cycle_per_core * constants.operand_port_ratio,
        np.where(old, 1.0, constants.operand_exposed_fraction),
        constants.least_cycles_per_k * (1.0 - 1.0 / designs.array_k),
        designs.n_cores,
        np.where(old, constants.wave_rounding_fraction_without_bulk_copy, constants.wave_rounding_fraction),
        constants.split_cost_ratio * overhead,
        cost.cycles_per_k_step,
        cost.least_cycles_per_k_step,
        tiles.streamed_share,
        designs.stationarity.astype(np.int64),
        np.where(tile_fits(designs), cost.fixed_cycles, np.inf),
        k,
        m * n,
        np.ascontiguousarray(element_bytes),
        tiles.tiles,
        tiles.tried,
        TILE_SIDES.sum(axis=0),
        np.array(splits, dtype=np.float64),
        constants.k_tile_elements,
        constants.split_cost_ratio * ACCUMULATOR_BYTES,
    )


def rate_loss(rate_ratio: FloatArray, constants: GemmConstants) -> FloatArray:
    """Return the cycles of a step of a format faster than bf16 over those at full rate, shape of `rate_ratio` [1]."""
    doublings = np.log2(np.maximum(rate_ratio, 1.0))
    first = constants.rate_loss_exponent * np.minimum(doublings, 1.0)
    return np.asarray(2.0 ** (first + constants.rate_loss_exponent_beyond_double * np.maximum(doublings - 1.0, 0.0)))


def gemm_dram_bytes(
    l2_bytes: ArrayLike,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    weight_bytes_per_element: ArrayLike,
    input_bytes_per_element: ArrayLike,
    output_bytes_per_element: ArrayLike,
    copies: ArrayLike = 1.0,
    weights_resident: bool = True,
    constants: GemmConstants | None = None,
) -> FloatArray:
    """
    Return the main-memory traffic of a GEMM, of which operands that fit the shared buffer are spared.

    Each operand crosses once; the larger of this and b m n k / sqrt(S / b), the least that any blocking in a
    buffer of S bytes moves [1]_. What is resident is smooth: 1 / (1 + (footprint / S)^p) of it stays.

    Parameters
    ----------
    l2_bytes : array of shape (n_designs,)
        Shared buffer that one operand can use: capacity over halves that hold the same data. [B]
    m, n, k : arrays of shape (n_shapes,)
        Sizes. [1]
    weight_bytes_per_element, input_bytes_per_element, output_bytes_per_element : arrays of shape (n_shapes,)
        As stored in main memory. [B]
    copies : array of shape (n_shapes,) or (n_designs, n_shapes), optional
        Sets of operands in turn between two uses of the same weights. [1]
    weights_resident : bool, optional
        False where other layers come between two uses of these weights, so that they are never found again.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Never rising with `l2_bytes`. [B]

    References
    ----------
    .. [1] J.-W. Hong, H. T. Kung, "I/O complexity: the red-blue pebble game", STOC 1981,
       doi:10.1145/800076.802486.

    Examples
    --------
    >>> moved = gemm_dram_bytes([50e6], [1.0], [8192.0], [8192.0], [2.0], [2.0], [2.0], weights_resident=False)
    >>> bool(moved[0, 0] >= 2 * 8192**2)
    True
    """
    used = constants or gemm_constants()
    m, n, k = (np.atleast_1d(require_at_least(name, v, 1)) for name, v in (("m", m), ("n", n), ("k", k)))
    store = used.l2_effective_ratio * np.atleast_1d(np.asarray(l2_bytes, dtype=np.float64))[:, None]
    weights, inputs = n * k * np.asarray(weight_bytes_per_element), m * k * np.asarray(input_bytes_per_element)
    outputs = m * n * np.asarray(output_bytes_per_element)
    footprint = weights + inputs + outputs
    missed = weights
    if weights_resident:
        missed = weights * miss_fraction(np.asarray(copies) * footprint, store, used.l2_hit_sharpness_exponent)
    once = missed + (inputs + outputs) * miss_fraction(footprint, store, used.l2_hit_sharpness_exponent)
    element = np.maximum(weight_bytes_per_element, input_bytes_per_element)
    blocked = element * m * n * k / np.sqrt(np.maximum(store, 1.0) / element)
    return np.asarray(np.maximum(once, np.where(footprint > store, blocked, 0.0)), dtype=np.float64)


def gemm_buffer_bytes(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    weight_bytes_per_element: ArrayLike,
    input_bytes_per_element: ArrayLike,
    output_bytes_per_element: ArrayLike,
) -> FloatArray:
    """
    Return the bytes of a GEMM that cross between shared buffer and cores.

    Every tile of the result fetches its rows and columns anew, so weights cross max(1, m / T) times and inputs
    max(1, n / T) times, with T the side of a large tile of public libraries; no design makes it less.

    Parameters
    ----------
    m, n, k : arrays of shape (n_shapes,)
        Sizes. [1]
    weight_bytes_per_element, input_bytes_per_element, output_bytes_per_element : arrays of shape (n_shapes,)
        As they reach the cores. [B]

    Returns
    -------
    array of shape (n_shapes,)
        At least every operand once. [B]

    Examples
    --------
    >>> float(gemm_buffer_bytes(1.0, 8.0, 16.0, 2.0, 2.0, 2.0))
    304.0
    """
    side = constants_of("energy")["buffer_tile_elements"]
    m, n, k = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
    weights = n * k * np.asarray(weight_bytes_per_element) * np.maximum(m / side, 1.0)
    inputs = m * k * np.asarray(input_bytes_per_element) * np.maximum(n / side, 1.0)
    return np.asarray(weights + inputs + m * n * np.asarray(output_bytes_per_element))


def miss_fraction(footprint_bytes: FloatArray, store_bytes: FloatArray, sharpness: float) -> FloatArray:
    """Share of a footprint that is not found in the store, 1 - 1 / (1 + z^p) [1]."""
    ratio = np.minimum(footprint_bytes / np.maximum(store_bytes, 1.0), 1e3) ** sharpness
    return np.asarray(ratio / (1.0 + ratio))


def gemm_time_s(
    cycles: FloatArray,
    dram_bytes: FloatArray,
    clock_hz: ArrayLike,
    memory_bandwidth_bytes_per_s: ArrayLike,
    start_s: ArrayLike,
    kernel_start_cycles: ArrayLike | None = None,
    constants: GemmConstants | None = None,
) -> FloatArray:
    """
    Return start + kernel start / clock + smooth maximum of on-chip and memory time.

    Parameters
    ----------
    cycles : array of shape (n_designs, n_shapes)
        Of `onchip_cycles`, times `droop_slowdown` where the power cap binds. [1]
    dram_bytes : array of shape (n_designs, n_shapes)
        Of `gemm_dram_bytes`. [B]
    clock_hz, memory_bandwidth_bytes_per_s : arrays of shape (n_designs,)
        Highest clock [Hz] and peak bandwidth [B/s].
    start_s : array of shape () or (n_designs,) or (n_designs, n_shapes)
        Launch of one kernel beyond the core's own start. [s]
    kernel_start_cycles : array of shape (n_designs,), optional
        Of the function of this name; left out, that of cores which copy in bulk beside computing. [1]

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Time. [s]

    Examples
    --------
    >>> time_s = gemm_time_s(np.array([[1e6]]), np.array([[1e6]]), [1e9], [1e12], 0.0)
    >>> bool(time_s[0, 0] > 1e-3)
    True
    """
    used = constants or gemm_constants()
    clock = require_positive("clock_hz", clock_hz, "Hz").reshape(-1, 1)
    bandwidth = require_positive("memory_bandwidth_bytes_per_s", memory_bandwidth_bytes_per_s, "B/s").reshape(-1, 1)
    begin = used.kernel_start_cycles if kernel_start_cycles is None else np.asarray(kernel_start_cycles).reshape(-1, 1)
    start = np.asarray(start_s, dtype=np.float64)
    busy_s = smooth_maximum(cycles / clock, memory_time_s(dram_bytes, bandwidth, used), used.overlap_exponent)
    return np.asarray((start[:, None] if start.ndim == 1 else start) + begin / clock + busy_s)


def memory_time_s(dram_bytes: FloatArray, bandwidth: FloatArray, constants: GemmConstants) -> FloatArray:
    """Time of a stream that takes a latency to reach its rate; a transfer shorter than that pays in proportion [s]."""
    ramp = constants.memory_ramp_s
    in_flight = bandwidth * ramp
    lead_s = ramp * dram_bytes / (dram_bytes + in_flight) if ramp > 0 else 0.0
    return np.asarray(dram_bytes / (constants.memory_efficiency_fraction * bandwidth) + lead_s)


def kernel_start_cycles(designs: DesignBatch, constants: GemmConstants | None = None) -> FloatArray:
    """Cycles before the first tile of a kernel and after the last, shape (n_designs,) [1]."""
    used = constants or gemm_constants()
    old = designs.bulk_async_copy == 0
    return np.where(old, used.kernel_start_cycles_without_bulk_copy, used.kernel_start_cycles)


def effective_l2_bytes(designs: DesignBatch) -> FloatArray:
    """
    Return the on-chip memory that distinct data can use between two trips to main memory, shape (n_designs,) [B].

    The shared buffer, of which halves that each hold a copy count once; or where it is larger, as on chips without
    one, the half of all scratchpads that does not stage the operands of running tiles.
    """
    scratchpads = 0.5 * designs.n_cores * designs.scratchpad_bytes_per_core
    return np.asarray(np.maximum(designs.l2_bytes / designs.l2_halves, scratchpads))


def droop_slowdown(issued_power_over_cap: FloatArray) -> FloatArray:
    """
    Return by how much on-chip work slows as the clock settles under the power cap, of any shape [1].

    The argument is the power of the work really issued at the full clock over the cap, and not of the peak: so
    a design with more cores never becomes slower.
    """
    return smooth_excess(issued_power_over_cap)


def issued_power_w(
    designs: DesignBatch,
    issued_flop_per_s: FloatArray,
    rate_ratio: ArrayLike = 1.0,
    constants: GemmConstants | None = None,
) -> FloatArray:
    """
    Return the board power of issued work at the full clock, shape (n_designs, n_shapes) [W].

    Energy grows with node and with the square of the clock, from the fitted joule per bf16 FLOP at 5 nm, 1.8 GHz
    and 2048 multiply-accumulates a cycle and core; more of them share what a core fetches and issues. A FLOP of
    a format that runs r times as fast takes r^-0.65 of it, as board power shows.
    """
    used = constants or gemm_constants()
    scale = designs.node_nm / 5.0 * (designs.clock_hz / 1.8e9) ** 2
    scale = scale * (2048.0 / macs_per_cycle_per_core(designs)) ** used.energy_array_exponent
    return np.asarray(
        used.energy_j_per_flop
        * scale[:, None]
        * issued_flop_per_s
        / np.asarray(rate_ratio) ** used.energy_rate_exponent
    )
