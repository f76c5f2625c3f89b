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


class _Matmul(ctypes.Structure):
    _fields_ = [
        ("weights", _Dequantize),
        ("tiles", ctypes.c_void_p),
        ("m", ctypes.c_int64),
        ("activations", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
    ]


_DTYPES = {torch.bfloat16: b"BF16", torch.float16: b"F16", torch.float32: b"F32"}


class Library:
    def __init__(self, path):
        self._lib = ctypes.CDLL(path)
        self._lib.halfbyte_last_error.restype = ctypes.c_char_p
        self._lib.halfbyte_w4_tile_bytes.restype = ctypes.c_int64
        self._lib.halfbyte_w4_workspace.restype = ctypes.c_int64

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
        self._run(self._lib.halfbyte_dequantize, call)

    def pack(self, weights, m):
        """Weights (a `Weights`) packed for products with m rows of activations; returns the call for matmul()."""
        call = _Matmul(weights=weights.call, m=m)
        tiles = torch.empty(self._lib.halfbyte_w4_tile_bytes(ctypes.byref(weights.call)), dtype=torch.uint8, device="cuda")
        size = self._lib.halfbyte_w4_workspace(ctypes.byref(weights.call), ctypes.c_int64(m))
        call.keep = tiles, torch.zeros(max(size, 16), dtype=torch.uint8, device="cuda"), weights
        call.tiles, call.workspace = (part.data_ptr() for part in call.keep[:2])
        self._run(self._lib.halfbyte_w4_pack, call)
        return call

    def matmul(self, call, activations, out):
        call.activations, call.out = activations.data_ptr(), out.data_ptr()
        self._run(self._lib.halfbyte_w4_matmul, call)

    def read(self, tensor, sink):
        """Reads a tensor's bytes and does nothing else."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        size = ctypes.c_int64(tensor.numel() * tensor.element_size())
        if self._lib.halfbyte_read(ctypes.c_void_p(tensor.data_ptr()), size, ctypes.c_void_p(sink.data_ptr()), stream):
            raise RuntimeError("reading failed")

    def _run(self, function, call):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if function(ctypes.byref(call), stream):
            raise RuntimeError(self._lib.halfbyte_last_error().decode())


class Weights:
    """Random 4-bit weights [rows, columns] on the device, as the C interface takes them; no encoder is involved."""

    def __init__(self, kind, rows, columns, dtype):
        self.format, self.double = kind.removesuffix("-double"), kind.endswith("-double")
        block = {"nvfp4": 16, "mxfp4": 32}.get(self.format, 64)
        blocks = rows * columns // block
        code = lambda count, low, high: torch.randint(low, high, (count,), dtype=torch.uint8, device="cuda")
        self.codes = code(rows * columns // 2, 0, 256)
        low, high = {"nvfp4": (0x20, 0x70), "mxfp4": (117, 124)}.get(self.format, (0, 256))
        self.scales8 = code(blocks, low, high)
        self.scales = torch.rand(blocks, device="cuda") * 0.02 + 0.001
        self.nested = torch.rand(-(-blocks // 256), device="cuda") * 0.01 + 0.01
        self.map = torch.linspace(-1, 1, 256, device="cuda")
        self.one = torch.full((1,), 2.0**-9, device="cuda")
        self.call = _Dequantize(
            format=self.format.encode(), block_size=block, double_quant=int(self.double), rule=b"pow2", rows=rows,
            columns=columns, codes=self.codes.data_ptr(), scales8=self.scales8.data_ptr(), scales=self.scales.data_ptr(),
            nested_absmax=self.nested.data_ptr(), map=self.map.data_ptr(), offset=0.02, group=256,
            global_scale=self.one.data_ptr(), dtype=_DTYPES[dtype])
        self.shape, self.dtype = (rows, columns), dtype

    def decoded(self, library, dtype):
        out = torch.empty(self.shape, dtype=dtype, device="cuda")
        call = _Dequantize.from_buffer_copy(self.call)
        call.dtype, call.out = _DTYPES[dtype], out.data_ptr()
        library.dequantize(call)
        return out

    def bytes(self):
        """What a product has to read: codes and scales."""
        blocks = self.scales8.numel()
        scales = blocks + 4 * self.nested.numel() if self.double else blocks if self.format in ("nvfp4", "mxfp4") else 4 * blocks
        return self.codes.numel() + scales
