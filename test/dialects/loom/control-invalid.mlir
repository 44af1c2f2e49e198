// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

func.func @main(%c: tensor<i1>) {
  // L-WH1
  // expected-error@+1 {{'loom.while' op names no body: @missing}}
  loom.while @missing if %c : (tensor<i1>) -> ()
  return
}

// -----

func.func @main(%c: tensor<i1>) {
  // expected-error@+1 {{'loom.while' op names no body: @entry}}
  loom.while @entry if %c : (tensor<i1>) -> ()
  return
}
func.func @entry() -> tensor<i1> {
  %more = loom.constant dense<true> : tensor<i1>
  return %more : tensor<i1>
}

// -----

func.func @main(%c: tensor<1xi1>) {
  // L-WH2
  // expected-error@+1 {{'loom.while' op has a condition of type 'tensor<1xi1>'}}
  loom.while @body if %c : (tensor<1xi1>) -> ()
  return
}
func.func @body() -> tensor<1xi1> attributes {loom.body} {
  %more = loom.constant dense<true> : tensor<1xi1>
  return %more : tensor<1xi1>
}

// -----

func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) {
  // expected-error@+1 {{'loom.while' op carries 'tensor<4xf32>', but results in 'tensor<3xf32>'}}
  %r = loom.while @body if %c carry %x : (tensor<i1>, tensor<4xf32>) -> tensor<3xf32>
  return
}
func.func @body(%x: tensor<4xf32>) -> (tensor<i1>, tensor<4xf32>) attributes {loom.body} {
  %more = loom.constant dense<true> : tensor<i1>
  return %more, %x : tensor<i1>, tensor<4xf32>
}

// -----

func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) {
  // expected-error@+1 {{'loom.while' op gives @body 'tensor<4xf32>', which takes 'tensor<4xf64>'}}
  loom.while @body if %c read %x : (tensor<i1>, tensor<4xf32>) -> ()
  return
}
func.func @body(%x: tensor<4xf64>) -> tensor<i1> attributes {loom.body} {
  %more = loom.constant dense<true> : tensor<i1>
  return %more : tensor<i1>
}

// -----

func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) {
  // L-IF1
  // expected-error@+1 {{'loom.if' op expects 'tensor<4xf32>' of @no, which returns 'tensor<i1>'}}
  %r = loom.if %c then @yes else @no read %x : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
  return
}
func.func @yes(%x: tensor<4xf32>) -> tensor<4xf32> attributes {loom.body} {
  return %x : tensor<4xf32>
}
func.func @no(%x: tensor<4xf32>) -> tensor<i1> attributes {loom.body} {
  %more = loom.constant dense<true> : tensor<i1>
  return %more : tensor<i1>
}

// -----

func.func @main(%c: tensor<2xi1>) {
  // L-IF2
  // expected-error@+1 {{'loom.if' op has a condition of type 'tensor<2xi1>'}}
  loom.if %c then @yes else @no : (tensor<2xi1>) -> ()
  return
}
func.func @yes() attributes {loom.body} {
  return
}
func.func @no() attributes {loom.body} {
  return
}
