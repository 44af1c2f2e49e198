// RUN: gridloom-opt %s | gridloom-opt | FileCheck %s

// CHECK-LABEL: func.func @main
func.func @main(%c: tensor<i1>, %x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %i = loom.constant dense<0> : tensor<i64>
  // CHECK: %[[R:.*]]:2 = loom.while @loop if %{{.*}} carry %{{.*}}, %{{.*}} read %{{.*}} trips = 8 : (tensor<i1>, tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
  %r:2 = loom.while @loop if %c carry %i, %x read %w trips = 8
      : (tensor<i1>, tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
  // CHECK: loom.while @forever if %{{.*}} : (tensor<i1>) -> ()
  loom.while @forever if %c : (tensor<i1>) -> ()
  // CHECK: loom.if %{{.*}} then @yes else @no read %[[R]]#1 : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
  %y = loom.if %c then @yes else @no read %r#1 : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @loop(%i: tensor<i64>, %x: tensor<4xf32>, %w: tensor<4xf32>) -> (tensor<i1>, tensor<i64>, tensor<4xf32>)
    attributes {loom.body} {
  %one = loom.constant dense<1> : tensor<i64>
  %limit = loom.constant dense<8> : tensor<i64>
  %next = loom.add %i, %one : tensor<i64>
  %more = loom.compare lt %next, %limit : (tensor<i64>, tensor<i64>) -> tensor<i1>
  %y = loom.add %x, %w : tensor<4xf32>
  return %more, %next, %y : tensor<i1>, tensor<i64>, tensor<4xf32>
}
func.func @forever() -> tensor<i1> attributes {loom.body} {
  %more = loom.constant dense<true> : tensor<i1>
  return %more : tensor<i1>
}
func.func @yes(%x: tensor<4xf32>) -> tensor<4xf32> attributes {loom.body} {
  return %x : tensor<4xf32>
}
func.func @no(%x: tensor<4xf32>) -> tensor<4xf32> attributes {loom.body} {
  %y = loom.negate %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
