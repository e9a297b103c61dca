"""The best rates of the machine: probes.c, measured in the same rounds."""

import ctypes
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p

import numpy as np


class Probes:
    def __init__(self, path, kernels):
        self.lib, self.kernels = ctypes.CDLL(path), kernels.encode()
        self.lib.probe_multiply_add.restype = self.lib.probe_read.restype = c_double
        self.lib.probe_multiply_add.argtypes = [c_char_p, c_int64, c_int]
        self.lib.probe_forward.restype = c_double
        self.lib.probe_forward.argtypes = [c_void_p, c_void_p, c_int64]

    def rate_for(self, row, threads):
        """A function that measures the peak rate for a row, in flops or bytes per second; or None."""
        if row.flops:
            return lambda: self.lib.probe_multiply_add(self.kernels, 50_000, threads)
        if not row.bytes:
            return None
        blocks = []
        self.read = [np.ones(row.bytes, np.uint8) for _ in range(row.sets)] if row.op == "matrix_vector" else []
        for i in range(row.sets):
            arrays = [row.inputs["k"][i], row.inputs["v"][i]] if row.op == "attention" else [row.inputs["x"]]
            arrays = self.read[i:i + 1] or arrays
            pointers = (c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
            blocks.append((pointers, (c_int64 * len(arrays))(*(a.nbytes for a in arrays)), len(arrays)))

        return lambda: self.lib.probe_read(self.kernels, *blocks[next(row.turn)], threads)

    def forward(self, module, x, turns):
        """Seconds for a forward pass, measured in C."""
        return self.lib.probe_forward(module, x, turns)
