"""Device score forms: logits to FP32 scores with the GPU's own exp, tanh and reciprocal.

Each step rounds to FP32. Every kernel here is compiled with ``enable_fp_fusion=False``: otherwise
the compiler may join the last multiplication of expf with the ``1 +`` after it in one kernel and
not in another, and a form would not be one function. ``exp.cuda_fma`` is that joined form, spelled
out: what nvcc makes of ``1.0f / (1.0f + expf(-x))`` with its default ``-fmad=true``.

Under the interpreter the device functions are numpy's: the structure is the same, the bits not.
"""

from __future__ import annotations

from typing import Any, Final

from .forms import DEVICE_FORMS
from .lang import INTERPRETED, launch, libdevice, tl, triton

# The steps of libdevice's expf; the 252 and the magic number are its own constants.
_EXPF_FMA: Final = tl.constexpr("""
{
  .reg .f32 n, t, u, r;
  .reg .b32 s;
  neg.f32 n, $1;
  fma.rn.ftz.f32 t, n, 0f3BBB989D, 0f3F000000;
  cvt.sat.ftz.f32.f32 t, t;
  fma.rm.ftz.f32 t, t, 0f437C0000, 0f4B400001;
  add.ftz.f32 u, t, 0fCB40007F;
  neg.ftz.f32 u, u;
  fma.rn.ftz.f32 r, n, 0f3FB8AA3B, u;
  fma.rn.ftz.f32 r, n, 0f32A57060, r;
  mov.b32 s, t;
  shl.b32 s, s, 23;
  mov.b32 t, s;
  ex2.approx.ftz.f32 r, r;
  fma.rn.f32 $0, r, t, 0f3F800000;
}
""")

if INTERPRETED:

    @triton.jit
    def _exp(x: tl.tensor) -> tl.tensor:
        return tl.exp(x)

    @triton.jit
    def _exp2_approx(x: tl.tensor) -> tl.tensor:
        return tl.exp2(x)

    @triton.jit
    def _one_plus_exp_fma(x: tl.tensor) -> tl.tensor:
        return (1.0 + tl.exp(-x.to(tl.float64))).to(tl.float32)

    @triton.jit
    def _reciprocal(x: tl.tensor) -> tl.tensor:
        return tl.div_rn(1.0, x)

    @triton.jit
    def _reciprocal_approx(x: tl.tensor) -> tl.tensor:
        return tl.div_rn(1.0, x)

    @triton.jit
    def _tanh(x: tl.tensor) -> tl.tensor:
        return (2.0 / (1.0 + tl.exp(-2.0 * x.to(tl.float64))) - 1.0).to(tl.float32)

    @triton.jit
    def _tanh_approx(x: tl.tensor) -> tl.tensor:
        # 11 significant bits, as the instruction gives.
        bits = _tanh(x).to(tl.int32, bitcast=True) & -4096
        return bits.to(tl.float32, bitcast=True)

else:

    @triton.jit
    def _exp(x: tl.tensor) -> tl.tensor:
        return libdevice.exp(x)

    @triton.jit
    def _exp2_approx(x: tl.tensor) -> tl.tensor:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def _one_plus_exp_fma(x: tl.tensor) -> tl.tensor:
        return tl.inline_asm_elementwise(
            _EXPF_FMA, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def _reciprocal(x: tl.tensor) -> tl.tensor:
        return libdevice.rcp_rn(x)

    @triton.jit
    def _reciprocal_approx(x: tl.tensor) -> tl.tensor:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def _tanh(x: tl.tensor) -> tl.tensor:
        return libdevice.tanh(x)

    @triton.jit
    def _tanh_approx(x: tl.tensor) -> tl.tensor:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def score(x: tl.tensor, FORM: tl.constexpr) -> tl.tensor:
    """The FP32 scores of FP32 logits by the code of ``DEVICE_FORMS``."""
    # No early returns: Triton compiles what stands after one.
    if FORM == 0:
        result = _reciprocal(1.0 + _exp(-x))
    elif FORM == 1:
        result = _reciprocal(_one_plus_exp_fma(x))
    elif FORM == 2:
        result = _reciprocal_approx(1.0 + _exp2_approx(x * -1.4426950408889634))
    elif FORM == 3:
        result = 0.5 * _tanh(0.5 * x) + 0.5
    else:
        tl.static_assert(FORM == 4, "unknown score form")
        result = 0.5 * _tanh_approx(0.5 * x) + 0.5
    return result


@triton.jit
def _fill_kernel(
    logits: tl.tensor, out: tl.tensor, count: tl.tensor, FORM: tl.constexpr, BLOCK: tl.constexpr
) -> tl.tensor:
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(logits + at, mask=inside, other=0.0)
    tl.store(out + at, score(x, FORM), mask=inside)


def device_score(form: str, logits: Any) -> Any:
    """The FP32 scores of a contiguous FP32 tensor by a form of ``DEVICE_FORMS``, same shape."""
    import torch

    out = torch.empty_like(logits)
    count = logits.numel()
    block = 1024
    code = DEVICE_FORMS[form].code
    launch(_fill_kernel, -(-count // block), logits, out, count, code, block, warps=4)
    return out
