"""Writes the samples beside this file: one small graph as it comes from two places, and one with another weight.

Made with jax 0.10.2 (`pip install jax`): `python make.py`. The tests need only what it wrote: NAME.mlir (text), NAME.mlirbc
(bytecode), NAME.vhlo (a portable artifact, which is bytecode of another dialect) and NAME.pb (HloModuleProto).

torch_here.mlirbc and torch_there.mlirbc are of torch-mlir 20261001: `fx.export_and_import(..., output_type="stablehlo")` of a module
with a convolution, batch norm and pooling, defined at two places, with another `torch.debug_dump_path`.
"""

import io
import pathlib

import jax
import jax.numpy as jnp
from jax._src.interpreters import mlir
from jax._src.lib import _jax

SOURCE = """
def block(x, w, b):
    h = jnp.maximum(jnp.dot(x, w) + b, 0.0)
    table = jnp.asarray([[1.0, 2.0], [3.0, WEIGHT]], dtype=jnp.float32)
    return jnp.mean(h @ table, axis=0), jnp.argmax(h, axis=1)
"""


def trace(path: str, line: int, weight: str = "4.5") -> jax.stages.Lowered:
    names = {"jnp": jnp}
    exec(compile("\n" * line + SOURCE.replace("WEIGHT", weight), path, "exec"), names)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 3), (3, 2), (2,))]
    return jax.jit(names["block"]).lower(*shapes)


def write(name: str, lowered: jax.stages.Lowered) -> None:
    here = pathlib.Path(__file__).parent
    with mlir.make_ir_context():
        module = lowered.compiler_ir("stablehlo")
        (here / f"{name}.mlir").write_text(module.operation.get_asm(enable_debug_info=True))
        out = io.BytesIO()
        module.operation.write_bytecode(out)
        (here / f"{name}.mlirbc").write_bytes(out.getvalue())
        (here / f"{name}.vhlo").write_bytes(_jax.mlir.serialize_portable_artifact(out.getvalue(), "1.0.0"))
        proto = _jax.mlir.mlir_module_to_xla_computation(out.getvalue(), use_tuple_args=False, return_tuple=True)
        (here / f"{name}.pb").write_bytes(proto.as_serialized_hlo_module_proto())


write("here", trace("/home/ann/model.py", 3))
write("there", trace("/srv/site-packages/nets/layers/dense_block.py", 1234))
write("weight", trace("/home/ann/model.py", 3, weight="4.75"))
