"""ctypes binding of libhalfbyte_cuda_c.so (bench/gpu/capi.cc) for the scripts in this folder, which compare it with
bitsandbytes on the same device memory."""

import ctypes

import torch


class _Dequantize(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("double_quant", ctypes.c_int),
        ("rule", ctypes.c_char_p),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("codes", ctypes.c_void_p),
        ("scales8", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("nested_absmax", ctypes.c_void_p),
        ("map", ctypes.c_void_p),
        ("offset", ctypes.c_float),
        ("group", ctypes.c_int64),
        ("global_scale", ctypes.c_void_p),
        ("dtype", ctypes.c_char_p),
        ("out", ctypes.c_void_p),
    ]


_DTYPES = {torch.bfloat16: b"BF16", torch.float16: b"F16", torch.float32: b"F32"}


class Library:
    def __init__(self, path):
        self._lib = ctypes.CDLL(path)
        self._lib.halfbyte_last_error.restype = ctypes.c_char_p

    def prepare(self, packed, state, out):
        """The argument struct for a bitsandbytes 4-bit tensor; build it once, call dequantize() many times."""
        call = _Dequantize(
            format=state.quant_type.encode(),
            block_size=state.blocksize,
            double_quant=int(state.nested),
            rule=b"pow2",
            rows=1,
            columns=out.numel(),
            codes=packed.data_ptr(),
            dtype=_DTYPES[out.dtype],
            out=out.data_ptr(),
            group=256,
        )
        if state.nested:
            call.scales8 = state.absmax.data_ptr()
            call.nested_absmax = state.state2.absmax.data_ptr()
            call.map = state.state2.code.data_ptr()
            call.offset = float(state.offset)
            call.group = state.state2.blocksize
        else:
            call.scales = state.absmax.data_ptr()
        return call

    def dequantize(self, call):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self._lib.halfbyte_dequantize(ctypes.byref(call), stream):
            raise RuntimeError(self._lib.halfbyte_last_error().decode())
