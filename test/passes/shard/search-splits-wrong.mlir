// RUN: gridloom-opt %s --dist-search-splits="axes=data" --verify-diagnostics

dist.mesh @mesh <["data" = 2]>
func.func @wrong(%x: tensor<8x8xf32> {loom.name = "x"}) -> (tensor<8x8xf32> {loom.name = "y"}) {
  // D-SP1
  // expected-error @below {{has dist.splits of 1 factors; its sharding rule has 2}}
  %0 = loom.exp %x {dist.splits = #dist.splits<[{}]>} : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
