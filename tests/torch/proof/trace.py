"""From a function to plans: functional graphs with symbols, the request to the engine, and the call that runs a plan.

`compile_with` is what a backend does; `Traced` drives it without Dynamo, which is faster and lets tests choose the dynamic
dimensions. In both, AOTAutograd splits forward and backward, and both run through `poison.Interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from functorch.compile import make_boxed_func
from neuroncache import canonical, compat
from neuroncache.bucketing.plan import SubPlan
from neuroncache.errors import Unsupported
from torch._decomp import core_aten_decompositions
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import CompileContext, CompileId, TracingContext, compile_context, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from . import poison, tool

_tables: dict[str, dict[Any, Any]] = {}


def table(name: str) -> dict[Any, Any]:
    """Decompositions: "core" for compilers that take core ATen, "inductor" for inductor's own table."""
    if name not in _tables:
        if name == "inductor":
            from torch._inductor.decomposition import select_decomp_table

            _tables[name] = dict(select_decomp_table())
        else:
            # The entry of the CPU's flash attention returns no logsumexp, which the backward operator needs.
            _tables[name] = {
                op: rule
                for op, rule in core_aten_decompositions().items()
                if "_scaled_dot_product_flash_attention_for_cpu" not in str(op)
            }
    return _tables[name]


@dataclass
class Half:
    """The forward or the backward graph of a trace."""

    module: torch.fx.GraphModule
    graph: canonical.Graph
    nodes: list[torch.fx.Node]  # placeholders
    outputs: list[Any]
    descriptions: list[Any]
    strides: dict[int, tuple[list[Any], Any]] = field(default_factory=dict)


@dataclass
class Call:
    """What one forward call used, so that its backward call uses the same. None: at its exact shape."""

    true: dict[str, int]
    buckets: dict[str, int] | None
    inputs: str


class Policy:
    """How calls are to run. Set by the test between calls."""

    def __init__(self) -> None:
        self.exact = False
        self.inputs = "zero"
        self.options = poison.Options()
        # A bucket vector for the true sizes of the padded symbols; None where no allowed one is found.
        self.choose: Callable[[dict[str, int], Callable[[dict[str, int]], bool]], dict[str, int] | None] = (
            default_choice
        )
        self.claims = True


def default_choice(true: dict[str, int], allowed: Callable[[dict[str, int]], bool]) -> dict[str, int] | None:
    """The first vector that the guards allow among a few that pad each symbol."""
    rules: list[Callable[[int, int], int]] = [
        lambda n, i: n + 1 + i,
        lambda n, i: 1 << n.bit_length(),
        lambda n, i: 2 * n,
        lambda n, i: n + 2,
        lambda n, i: 8 * (n // 8 + 1),
        lambda n, i: 3 * n,
        lambda n, i: n + (1 if i == 0 else 0),
        lambda n, i: n + (1 if i == 1 else 0),
    ]
    for rule in rules:
        buckets = {symbol: rule(n, index) for index, (symbol, n) in enumerate(true.items())}
        if buckets != true and allowed(buckets):
            return buckets
    return None


class Pair:
    """The forward and backward graphs of one trace, their plans and their calls."""

    def __init__(self, policy: Policy, shape_env: ShapeEnv | None, engine: tool.Tool) -> None:
        self.policy = policy
        self.shape_env = shape_env
        self.engine = engine
        self.forward: Half | None = None
        self.backward: Half | None = None
        self.unsupported: str = ""
        self.plans: dict[tuple[str, str], SubPlan] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self.calls: list[Call] = []
        self.log: list[str] = []  # what each forward call did: "padded" or why not
        self.last: Call | None = None

    def calls_text(self) -> str:
        """The sizes of the last call, for messages."""
        if self.last is None or self.last.buckets is None:
            return "exact"
        return ", ".join(f"{name} {self.last.true.get(name, '?')} in {n}" for name, n in self.last.buckets.items())

    # -- compiling ------------------------------------------------------------------------------------------------

    def compiler(self, role: str) -> Callable[..., Any]:
        def compile_half(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            half: Half | None = None
            try:
                half = self._half(gm, inputs, role)
            except Unsupported as error:
                self.unsupported = f"{error.op} {error.reason}".strip()
            if role == "backward":
                self.backward = half
                return make_boxed_func(lambda *arguments: self._run_backward(gm, half, arguments))
            self.forward = half
            return make_boxed_func(lambda *arguments: self._run_forward(gm, half, arguments))

        return compile_half

    def _half(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], role: str) -> Half:
        nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
        out = gm.graph.output_node()
        outputs = list(out.args[0]) if isinstance(out.args[0], (list, tuple)) else [out.args[0]]
        half = Half(
            gm,
            canonical.export_functional(gm, inputs, role, foreign=True),
            nodes,
            outputs,
            list(out.meta.get("desc") or [None] * len(outputs)),
        )
        if any(name[0] != "s" for name in half.graph.symbols.ids.values()):
            raise Unsupported("a size is known only at run time")
        if role != "backward":
            # Bases of views as well: AOTAutograd makes the views anew, from the strides that it saw.
            export = half.graph.symbols.export
            for index, (value, description) in enumerate(zip(outputs, half.descriptions, strict=True)):
                fake = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
                if isinstance(fake, torch.Tensor) and not _is_saved(description):
                    strides = [export(stride) for stride in fake.stride()]
                    half.strides[index] = (strides, export(fake.storage_offset()))
        return half

    # -- planning -------------------------------------------------------------------------------------------------

    def request(self, inputs: str) -> dict[str, Any]:
        assert self.forward is not None
        result: dict[str, Any] = {"request": 1, "forward": self.forward.graph.document}
        if self.backward is not None:
            result["backward"] = self.backward.graph.document
            result["link"] = self._link(self.forward, self.backward)
        hints = {name: n for name, n in self.forward.graph.symbols.hints().items() if name.startswith("s")}
        names = sorted(hints, key=lambda name: int(name[1:]))
        result["equal"] = [[a, b] for index, a in enumerate(names) for b in names[index + 1 :] if hints[a] == hints[b]]
        result["inputs"] = inputs
        result["random"] = "strict"
        result["claims"] = self.policy.claims
        if self.shape_env is not None:
            result["known"] = self.forward.graph.symbols.known(compat.known_sizes(self.shape_env))
        return result

    def _link(self, forward: Half, backward: Half) -> dict[str, Any]:
        ids = forward.graph.symbols.ids
        symbols = [
            int(ids[symbol][1:]) if symbol in ids else None
            for symbol, _ in sorted(backward.graph.symbols.ids.items(), key=lambda item: int(item[1][1:]))
        ]
        saved_at = {
            output.name: index
            for index, (output, description) in enumerate(zip(forward.outputs, forward.descriptions, strict=True))
            if isinstance(output, torch.fx.Node) and _is_saved(description)
        }
        output_at = {description: index for index, description in enumerate(forward.descriptions)}
        saved, tangents = [], []
        for index, node in enumerate(backward.nodes):
            description = node.meta.get("desc")
            if type(description).__name__ == "TangentAOTInput" or node.name.startswith("tangents"):
                tangents.append([index, output_at[description.output]])
            elif node.name in saved_at:
                saved.append([index, saved_at[node.name]])
        return {"symbols": symbols, "saved": saved, "tangents": tangents}

    def answer(self, inputs: str) -> dict[str, Any]:
        """The engine's plan or refusal, or a refusal of our own where a graph cannot be exported."""
        if inputs not in self.answers:
            if self.unsupported:
                reason = {"graph": "forward", "node": None, "op": "", "reason": f"export: {self.unsupported}"}
                self.answers[inputs] = {"plan": 1, "refusal": reason}
            else:
                self.answers[inputs] = self.engine.plan(self.request(inputs))
        return self.answers[inputs]

    # -- running --------------------------------------------------------------------------------------------------

    def _run_forward(self, gm: torch.fx.GraphModule, half: Half | None, arguments: Sequence[Any]) -> Any:
        call = self._plan_call(half, arguments)
        self.calls.append(call)
        self.last = call
        if call.buckets is None:
            return gm(*arguments)
        assert half is not None
        results = self._interpret("forward", half, arguments, call)
        for index, (strides, offset) in half.strides.items():
            if isinstance(results[index], torch.Tensor):
                results[index] = _restride(
                    results[index],
                    [poison.evaluate(one, call.true) for one in strides],
                    poison.evaluate(offset, call.true),
                )
        return results

    def _plan_call(self, half: Half | None, arguments: Sequence[Any]) -> Call:
        if self.policy.exact:
            return Call({}, None, "")
        mode = self.policy.inputs
        answer = self.answer(mode)
        if "refusal" in answer:
            refusal = answer["refusal"]
            self.log.append(f"refused: {refusal['graph']} {refusal['op']}: {refusal['reason']}")
            return Call({}, None, mode)
        assert half is not None
        true = bind(half.graph, arguments)
        symbols = answer["symbols"]
        if not symbols:
            self.log.append("refused: no symbol is padded")
            return Call(true, None, mode)
        if any(true[a] != true[b] for a, b in answer["unify"]):
            self.log.append("exact: unified symbols differ")
            return Call(true, None, mode)
        follow = {b: a for a, b in answer["unify"]}
        leaders = {symbol: true[symbol] for symbol in symbols if symbol not in follow}

        def complete(leading: dict[str, int]) -> dict[str, int]:
            # Followers may be chained.
            full = {**true, **leading}
            for _ in follow:
                for b, a in follow.items():
                    full[b] = full[a]
            return full

        def allowed(leading: dict[str, int]) -> bool:
            full = complete(leading)
            return self.guards_hold(half, full) and all(
                poison.evaluate(size, full) >= max(1, poison.evaluate(size, true))
                for part in ("forward", "backward")
                for size in (answer.get(part) or {}).get("grow") or ()
            )

        chosen = self.policy.choose(leaders, allowed)
        if chosen is None:
            self.log.append("exact: the guards allow no bucket")
            return Call(true, None, mode)
        self.log.append("padded")
        return Call(true, complete(chosen), mode)

    def _run_backward(self, gm: torch.fx.GraphModule, half: Half | None, arguments: Sequence[Any]) -> Any:
        # Calls are nested at most: the last forward call with these sizes is the one.
        for index in range(len(self.calls) - 1, -1, -1):
            call = self.calls[index]
            if call.buckets is None or self._is_of(half, arguments, call):
                del self.calls[index]
                break
        else:
            raise AssertionError("a backward call belongs to no forward call")
        if call.buckets is None:
            return gm(*arguments)
        assert half is not None
        return self._interpret("backward", half, arguments, call)

    def _is_of(self, half: Half | None, arguments: Sequence[Any], call: Call) -> bool:
        assert half is not None and self.forward is not None
        ours = self._backward_ids(half)
        return all(
            call.true.get(ours[name], n) == n for name, n in bind(half.graph, arguments, kinds=("symbol",)).items()
        )

    def _backward_ids(self, half: Half) -> dict[str, str]:
        assert self.forward is not None
        ids = self.forward.graph.symbols.ids
        return {name: ids.get(symbol, "") for symbol, name in half.graph.symbols.ids.items()}

    def _interpret(self, part: str, half: Half, arguments: Sequence[Any], call: Call) -> list[Any]:
        assert call.buckets is not None
        key = (call.inputs, part)
        if key not in self.plans:
            self.plans[key] = SubPlan(self.answers[call.inputs][part], half.graph.document, half.graph.constants)
        interpreter = poison.Interpreter(self.plans[key], call.true, call.buckets, self.policy.options)
        with torch.no_grad():
            return interpreter.run(arguments, call.inputs)

    # -- guards ---------------------------------------------------------------------------------------------------

    def guards_hold(self, half: Half, sizes: dict[str, int]) -> bool:
        """Whether everything that tracing assumed of sizes holds for these."""
        env = self.shape_env
        if env is None:
            return True
        by_symbol = {symbol: sizes[name] for symbol, name in half.graph.symbols.ids.items() if name in sizes}
        for symbol, value in by_symbol.items():
            bounds = env.var_to_range.get(symbol)
            if bounds is not None and not (bounds.lower <= value <= bounds.upper):
                return False
        values = {symbol: sympy.Integer(value) for symbol, value in by_symbol.items()}
        for answer in self.answers.values():
            for part in ("forward", "backward"):
                for required in (answer.get(part) or {}).get("require") or ():
                    if poison.evaluate(required, sizes) < 0:
                        return False
        for guard in env.guards:
            wanted = guard.expr.xreplace(env.replacements).xreplace(values)
            if wanted == sympy.false:
                return False
        return True


def _is_saved(description: Any) -> bool:
    return type(description).__name__.startswith("SavedForBackwards")


def bind(graph: canonical.Graph, arguments: Sequence[Any], kinds: Sequence[str] | None = None) -> dict[str, int]:
    """True sizes by symbol, from the arguments of a call."""
    values: dict[str, int] = {}
    for entry, argument in zip(graph.document["inputs"], arguments, strict=True):
        if kinds is not None and entry["kind"] not in kinds:
            continue
        if entry["kind"] == "symbol":
            expression = entry["type"].get("int")
            if isinstance(expression, str):
                values.setdefault(expression, int(argument))
        elif isinstance(argument, torch.Tensor):
            for expression, size in zip(entry["type"]["d"], argument.shape, strict=True):
                if isinstance(expression, str):
                    values.setdefault(expression, int(size))
    return values


def fits(graph: canonical.Graph, arguments: Sequence[Any], values: dict[str, int]) -> bool:
    """Whether the sizes of arguments are what the graph says, with these values of the symbols."""
    return all(
        poison.evaluate(expression, values) == size
        for entry, argument in zip(graph.document["inputs"], arguments, strict=True)
        if isinstance(argument, torch.Tensor)
        for expression, size in zip(entry["type"]["d"], argument.shape, strict=True)
    )


def _restride(value: torch.Tensor, strides: list[int], offset: int) -> torch.Tensor:
    """The same elements with these strides: AOTAutograd makes views of its own from an output that aliases."""
    if value.numel() == 0:
        return torch.empty(0, dtype=value.dtype).as_strided(value.shape, strides, 0)
    end = offset + 1 + sum((size - 1) * stride for size, stride in zip(value.shape, strides, strict=True))
    buffer = torch.zeros(end, dtype=value.dtype)
    shape = [1 if stride == 0 else size for size, stride in zip(value.shape, strides, strict=True)]
    source = value[tuple(slice(0, size) for size in shape)]
    buffer.as_strided(shape, strides, offset).copy_(source)
    return buffer.as_strided(value.shape, strides, offset)


def settings() -> Any:
    """What has to be in force while tracing: each size its own symbol, both graphs before the first call."""
    return torch._functorch.config.patch(force_non_lazy_backward_lowering=True, donated_buffer=False)


@dataclass
class Dynamic:
    """A dimension that varies: argument `argument`, dimension `dim`."""

    argument: int
    dim: int


class Traced:
    """A function of flat arguments (tensors and ints), traced once with some dimensions dynamic; callable at any sizes."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        dynamic: Sequence[Dynamic],
        *,
        policy: Policy | None = None,
        decompositions: str = "core",
        engine: tool.Tool | None = None,
        tied: bool = False,
    ) -> None:
        """`tied`: sizes that are equal here are one symbol, which makes tracing faster. Else each is its own."""
        self.policy = policy or Policy()
        env = ShapeEnv(specialize_zero_one=True, duck_shape=tied)
        self.tied = tied
        self.env = env
        self.pair = Pair(self.policy, env, engine or tool.shared())
        mode = FakeTensorMode(shape_env=env)
        mode.cache_enabled = False  # with symbols its entries cost more than they spare: a tenth of the time
        fakes = [self._fake(mode, index, argument, dynamic) for index, argument in enumerate(arguments)]
        # Symbols are inputs of their own, and come first, as Dynamo has it.
        seen: dict[Any, Any] = {}
        self.places = []
        for one in dynamic:
            size = fakes[one.argument].shape[one.dim]
            if isinstance(size, torch.SymInt) and size.node.expr not in seen:
                seen[size.node.expr] = size
                self.places.append((one.argument, one.dim))
        symbolic = list(seen.values())
        self.count = len(self.places)
        module = _Module(function, self.count)
        context = CompileContext(CompileId(frame_id=0, frame_compile_id=0))
        with (
            settings(),
            torch.compiler._compile_session_context(),
            compile_context(context),
            tracing(TracingContext(mode)),
        ):
            self.compiled = aot_module_simplified(
                module,  # type: ignore[arg-type]
                [*symbolic, *fakes],
                fw_compiler=self.pair.compiler("forward"),
                bw_compiler=self.pair.compiler("backward"),
                inference_compiler=self.pair.compiler("inference"),
                partition_fn=min_cut_rematerialization_partition,
                decompositions=table(decompositions),
            )

    def __call__(self, *arguments: Any) -> Any:
        sizes = [arguments[argument].shape[dim] for argument, dim in self.places]
        return self.compiled(*sizes, *arguments)

    def allows(self, *arguments: Any) -> bool:
        """Whether the guards of the trace hold for these arguments."""
        half = self.pair.forward
        if half is None:
            return True
        sizes = [arguments[argument].shape[dim] for argument, dim in self.places]
        flat = [*sizes, *arguments]
        if len(half.graph.document["inputs"]) != len(flat):
            return True
        values = bind(half.graph, flat)
        return fits(half.graph, flat, values) and self.pair.guards_hold(half, values)

    @property
    def symbolic(self) -> bool:
        """Whether any size is still symbolic after tracing, as far as is known."""
        half = self.pair.forward
        return half is None or any(entry["id"].startswith("s") for entry in half.graph.document["symbols"])

    def _fake(self, mode: FakeTensorMode, index: int, argument: Any, dynamic: Sequence[Dynamic]) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        wanted = {one.dim for one in dynamic if one.argument == index}
        kind = DimDynamic.DUCK if self.tied else DimDynamic.DYNAMIC
        sizes = [kind if dim in wanted else DimDynamic.STATIC for dim in range(argument.dim())]
        from torch._dynamo.source import ConstantSource

        return mode.from_tensor(
            argument,
            symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes),
            source=ConstantSource(f"a{index}"),
        )


class _Module(torch.nn.Module):
    """A function as the module that AOTAutograd wants; drops the leading symbols."""

    def __init__(self, function: Callable[..., Any], symbols: int) -> None:
        super().__init__()
        self.function = function
        self.symbols = symbols

    def forward(self, *arguments: Any) -> Any:
        result = self.function(*arguments[self.symbols :])
        return result if isinstance(result, (tuple, list)) else (result,)
