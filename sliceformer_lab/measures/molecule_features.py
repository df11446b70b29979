"""Features of whole molecules, from their SMILES with RDKit. Nothing here imports torch."""

from __future__ import annotations

from typing import Literal

import numpy as np

Descriptors = Literal["none", "rdkit", "morgan", "both"]

RADIUS = 2  # bonds from an atom to the end of the parts that a fingerprint counts
NUM_DESCRIPTORS = {"none": 0, "rdkit": 121, "morgan": 1024, "both": 1145}


def descriptors_of(smiles: str, kind: Descriptors) -> np.ndarray:
    """The features (F,) float32 of a molecule, F as in NUM_DESCRIPTORS.

    `rdkit`: RDKit's 43 properties (masses, counts of atoms, bonds and rings, logP, refractivity, surfaces, indices of
    connectivity and shape), the surface by logP, refractivity and charge (36), and 42 counts of Nguyen et al. (2009).
    `morgan`: the logarithm of 1 + the counts of a Morgan fingerprint. `both`: these one after the other.
    """
    from rdkit import Chem
    from rdkit.Chem import rdMolDescriptors as RDKit

    molecule = Chem.MolFromSmiles(smiles)
    parts: list[np.ndarray] = []
    if kind in ("rdkit", "both"):
        numbers = [
            RDKit.Properties().ComputeProperties(molecule),
            RDKit.SlogP_VSA_(molecule),
            RDKit.SMR_VSA_(molecule),
            RDKit.PEOE_VSA_(molecule),
            RDKit.MQNs_(molecule),
        ]
        parts.append(np.nan_to_num(np.concatenate(numbers), posinf=0.0, neginf=0.0))
    if kind in ("morgan", "both"):
        parts.append(np.log1p(fingerprint(smiles, NUM_DESCRIPTORS["morgan"])))
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


def fingerprint(smiles: str, size: int) -> np.ndarray:
    """Counts of a Morgan fingerprint (size,)."""
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=size)
    return np.asarray(generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(smiles)), dtype=np.float32)
