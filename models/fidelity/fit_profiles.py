"""Fits the shipped profiles, one a device and source: `python -m models.fidelity.fit_profiles DIR [NAME ...]`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.fidelity.calibrate import fit_families
from models.fidelity.calibration_rows import FamilyRows, calibration_rows
from models.fidelity.profiles import PROFILES, Profile, profile_text

SOURCES: Mapping[str, tuple[str, ...]] = {
    "aic": ("aic_gemm_*_sxm", "aic_gemm_l40s", "aic_gemm_b60", "aic_attention_*", "aic_moe", "aic_collectives"),
    "vidur": ("vidur_*",),
    "llmcompass": ("llmcompass_gemm", "llmcompass_elementwise", "llmcompass_allreduce"),
    "infersim": ("infersim_*",),
    "layers_v0": ("llmservingsim_layers_gpu_v0",),
    "layers_v1": ("llmservingsim_layers_gpu_v1",),
    "layers_tpu": ("llmservingsim_layers_tpu_v6e", "llmservingsim_attention_tpu_v6e"),
}
"""Source of measurements -> the tables that one software and one timer made."""


def rows_of_source(directory: Path, globs: Sequence[str]) -> list[FamilyRows]:
    """Return the rows of all tables of a source."""
    paths = sorted({path for glob in globs for path in directory.rglob(f"{glob}.csv")})
    return [part for path in paths for part in calibration_rows(path)]


def fitted_profile(name: str, device: str, globs: Sequence[str], parts: Sequence[FamilyRows]) -> Profile | None:
    """Return the profile of one device under one source, or None where its rows allow no fit."""
    fitted, _ = fit_families(parts)
    if not fitted:
        return None
    return Profile(
        name=name,
        device=device,
        constants={family: ratios for each in fitted for family, ratios in each.ratios.items() if ratios},
        tables=tuple(globs),
        fit={each.family: each.fit for each in fitted},
        note="fitted to rows of these tables by models/fidelity/fit_profiles.py",
    )


def main(directory: Path, wanted: Sequence[str]) -> None:
    """Fit and write every profile, or those whose name is wanted."""
    PROFILES.mkdir(exist_ok=True)
    for source, globs in SOURCES.items():
        parts = rows_of_source(directory, globs)
        for device in sorted({part.chip_id for part in parts}):
            name = f"{device}-{source}"
            if wanted and name not in wanted:
                continue
            profile = fitted_profile(name, device, globs, [part for part in parts if part.chip_id == device])
            path = PROFILES / f"{name}.toml"
            if profile is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(profile_text(profile), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
