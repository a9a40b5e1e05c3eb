module @net attributes {torch.debug_dump_path = "/tmp/a", x.y = 1 : i32} {
  func.func @main(%arg0: tensor<2xf32> loc("x")) -> tensor<2xf32> {
    %0 = stablehlo.constant dense<"0x0000803F0000803F"> : tensor<2xf32>
    return %0 : tensor<2xf32> loc(#loc1)
  }
}
#loc1 = loc(callsite("add"("b":1:2 to :9) at fused["c":1:2 to 3:4, unknown]))
