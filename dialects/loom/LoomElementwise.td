//===- LoomElementwise.td - elementwise operations ----------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_ELEMENTWISE
#define GRIDLOOM_LOOM_ELEMENTWISE

include "dialects/loom/LoomBase.td"

// An operation that computes each element of its result from the elements of its operands at the same position.
// A definition states what is special about it: `let linear = 1`, `let cycles = "12"`, numeric traits.
class Loom_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Loom_Op<mnemonic, !listconcat([DeclareOpInterfaceMethods<KernelBodyInterface>, SameOperandsAndResultShape], traits),
              [], [], ShardingRuleInterface> {
  /// f(x + y) = f(x) + f(y), over all operands together: partial sums pass through unreduced.
  bit linear = 0;
  /// C++ expression for CPU cycles on a vector of 16 f32, measured for some, estimated from similar ones for others.
  string cycles = "1";
  /// Element type of the example in the description.
  string exampleType = "f32";
  /// Declares the operation's own `getFlops`.
  string flops = "";
  let extraClassDeclaration = flops # [{
    ::gridloom::dist::ShardingRule getShardingRule() { return ::gridloom::dist::getElementwiseRule(*this); }
    bool isLinear() { return }] # linear # [{; }
    int64_t getScalarCycles() { return }] # cycles # [{; }
  }];
}

class Loom_UnaryOp<string mnemonic, string text, list<Trait> traits = []>
    : Loom_ElementwiseOp<mnemonic, !listconcat([SameOperandsAndResultType], traits)> {
  let summary = text;
  let description = "Each element of `output` is the " # text # ", where x is the element of `input` at the same position." #
      "\n\n```mlir\n%y = loom." # mnemonic # " %x : tensor<2x3x" # exampleType # ">\n```";
  let arguments = (ins Loom_Tensor:$input);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input attr-dict `:` type($output)";
}

class Loom_BinaryOp<string mnemonic, string text, list<Trait> traits = []>
    : Loom_ElementwiseOp<mnemonic, !listconcat([SameOperandsAndResultType], traits)> {
  let summary = text;
  let description = "Each element of `output` is the " # text # ", where x and y are the elements of `lhs` and `rhs` at the " #
      "same position.\n\n```mlir\n%z = loom." # mnemonic # " %x, %y : tensor<2x3x" # exampleType # ">\n```";
  let arguments = (ins Loom_Tensor:$lhs, Loom_Tensor:$rhs);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($output)";
}

def Loom_NegateOp : Loom_UnaryOp<"negate", "negative of x, -x"> { let linear = 1; }
def Loom_AbsOp : Loom_UnaryOp<"abs", "absolute value of x">;
def Loom_ExpOp : Loom_UnaryOp<"exp", "exponential of x, e to the x", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "12"; }
def Loom_LogOp : Loom_UnaryOp<"log", "natural logarithm of x", [Loom_Bounded, Loom_AmplifiesError]> { let cycles = "16"; }
def Loom_SqrtOp : Loom_UnaryOp<"sqrt", "square root of x", [Loom_AmplifiesError]> { let cycles = "10"; }
def Loom_RsqrtOp : Loom_UnaryOp<"rsqrt", "reciprocal square root of x, 1 / sqrt(x)", [Loom_AmplifiesError]> { let cycles = "10"; }
def Loom_TanhOp : Loom_UnaryOp<"tanh", "hyperbolic tangent of x", [Loom_Bounded]> { let cycles = "12"; }
def Loom_ErfOp : Loom_UnaryOp<"erf", "Gauss error function of x", [Loom_Bounded]> { let cycles = "20"; }
def Loom_LogisticOp : Loom_UnaryOp<"logistic", "logistic function of x, 1 / (1 + e to the -x)", [Loom_Bounded]> { let cycles = "12"; }
def Loom_FloorOp : Loom_UnaryOp<"floor", "largest integer not above x", [Loom_AmplifiesError]>;
def Loom_CeilOp : Loom_UnaryOp<"ceil", "smallest integer not below x", [Loom_AmplifiesError]>;
def Loom_SignOp : Loom_UnaryOp<"sign", "sign of x (-1, 0 or 1; NaN stays NaN)", [Loom_Bounded]>;
def Loom_NotOp : Loom_UnaryOp<"not", "bitwise complement of x (logical on i1)"> { let exampleType = "i1"; }
def Loom_RoundNearestEvenOp : Loom_UnaryOp<"round_nearest_even", "integer nearest to x (halves round to the even one)", [Loom_AmplifiesError]>;
def Loom_SineOp : Loom_UnaryOp<"sine", "sine of x in radians", [Loom_Bounded, Loom_AmplifiesError]> { let cycles = "16"; }
def Loom_CosineOp : Loom_UnaryOp<"cosine", "cosine of x in radians", [Loom_Bounded, Loom_AmplifiesError]> { let cycles = "16"; }
def Loom_TanOp : Loom_UnaryOp<"tan", "tangent of x in radians", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_AsinOp : Loom_UnaryOp<"asin", "arcsine of x, in radians", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_AcosOp : Loom_UnaryOp<"acos", "arccosine of x, in radians", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_AtanOp : Loom_UnaryOp<"atan", "arctangent of x, in radians", [Loom_Bounded]> { let cycles = "16"; }
def Loom_SinhOp : Loom_UnaryOp<"sinh", "hyperbolic sine of x", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_CoshOp : Loom_UnaryOp<"cosh", "hyperbolic cosine of x", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_AsinhOp : Loom_UnaryOp<"asinh", "inverse hyperbolic sine of x"> { let cycles = "100"; }
def Loom_AcoshOp : Loom_UnaryOp<"acosh", "inverse hyperbolic cosine of x", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_AtanhOp : Loom_UnaryOp<"atanh", "inverse hyperbolic tangent of x", [Loom_AmplifiesError]> { let cycles = "100"; }

def Loom_AddOp : Loom_BinaryOp<"add", "sum x + y"> { let linear = 1; }
def Loom_SubtractOp : Loom_BinaryOp<"subtract", "difference x - y"> { let linear = 1; }
def Loom_MultiplyOp : Loom_BinaryOp<"multiply", "product x * y">;
def Loom_DivideOp : Loom_BinaryOp<"divide", "quotient x / y (integers truncate)"> { let cycles = "isFloatTensor(getOutput()) ? 6 : 100"; }
def Loom_MaximumOp : Loom_BinaryOp<"maximum", "larger of x and y (NaN if either is)">;
def Loom_MinimumOp : Loom_BinaryOp<"minimum", "smaller of x and y (NaN if either is)">;
def Loom_PowerOp : Loom_BinaryOp<"power", "power x to the y", [Loom_AmplifiesError, Loom_ExceedsHalf]> { let cycles = "100"; }
def Loom_AndOp : Loom_BinaryOp<"and", "bitwise and of x and y (logical on i1)"> { let exampleType = "i1"; }
def Loom_OrOp : Loom_BinaryOp<"or", "bitwise or of x and y (logical on i1)"> { let exampleType = "i1"; }

def Loom_XorOp : Loom_BinaryOp<"xor", "bitwise exclusive or of x and y (logical on i1)"> { let exampleType = "i1"; }
def Loom_RemainderOp : Loom_BinaryOp<"remainder", "remainder x - y * trunc(x / y), which has the sign of x (an integer modulo zero gives x)", [Loom_AmplifiesError]> { let cycles = "100"; }
def Loom_ShiftLeftOp : Loom_BinaryOp<"shift_left", "value of x shifted left by y bits (0 where y is at least the width)"> { let exampleType = "ui32"; }
def Loom_ShiftRightLogicalOp : Loom_BinaryOp<"shift_right_logical", "value of x shifted right by y bits, zeros moving in (0 where y is at least the width)"> { let exampleType = "ui32"; }

def Loom_CompareOp : Loom_ElementwiseOp<"compare", [SameTypeOperands]> {
  let summary = "Compares elements; the result is i1";
  let description = [{
    `direction` is eq, ne, lt, le, gt or ge. A comparison with NaN is false, except that ne is true.

    ```mlir
    %p = loom.compare lt %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    ```
  }];
  let arguments = (ins Loom_Tensor:$lhs, Loom_Tensor:$rhs, DirectionAttr:$direction);
  let results = (outs Loom_BoolTensor:$output);
  let assemblyFormat = "`` $direction $lhs `,` $rhs attr-dict `:` functional-type(operands, results)";
}

def Loom_SelectOp : Loom_ElementwiseOp<"select", [AllTypesMatch<["on_true", "on_false", "output"]>]> {
  let summary = "predicate ? on_true : on_false";
  let description = [{
    Each element of `output` is that of `on_true` where `predicate` is true, else that of `on_false`.

    ```mlir
    %z = loom.select %p, %x, %y : tensor<2x3xi1>, tensor<2x3xf32>
    ```
  }];
  let arguments = (ins Loom_BoolTensor:$predicate, Loom_Tensor:$on_true, Loom_Tensor:$on_false);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$predicate `,` $on_true `,` $on_false attr-dict `:` type($predicate) `,` type($output)";
}

def Loom_ConvertOp : Loom_ElementwiseOp<"convert"> {
  let summary = "Changes the element type; float to integer truncates, anything to i1 is x != 0";
  let description = [{
    Floats round to the nearest, ties to even. A value that overflows an 8-bit float becomes its largest
    number; with `unsaturated` it becomes infinity, or NaN in a type without infinity.

    ```mlir
    %i = loom.convert %x : (tensor<2x3xf32>) -> tensor<2x3xi64>
    %e = loom.convert unsaturated %x : (tensor<2x3xf32>) -> tensor<2x3xf8E5M2>
    ```
  }];
  let arguments = (ins Loom_Tensor:$input, UnitAttr:$unsaturated);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "(`unsaturated` $unsaturated^)? $input attr-dict `:` functional-type(operands, results)";
  let cycles = "getConversionCycles(getInput(), getOutput())";
}

def Loom_BitcastConvertOp : Loom_ElementwiseOp<"bitcast_convert", [Loom_AmplifiesError]> {
  let summary = "The same bits as another element type of as many bits";
  let description = [{
    Nothing is computed: the bits of each element are read as the other type.

    ```mlir
    %b = loom.bitcast_convert %x : (tensor<2x3xf32>) -> tensor<2x3xui32>
    ```

    **Constraints:**
    - L-BT1: both element types are of one width, neither is i1.
  }];
  let arguments = (ins Loom_Tensor:$input);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Loom_RandomBitsOp : Loom_ElementwiseOp<"random_bits"> {
  let summary = "32 random bits for each index";
  let description = [{
    Element i of the block of four that has the element's index is word i of Philox4x32-10 (Salmon, Moraes, Dror and Shaw
    2011) of the key `seed` and the counter (index / 4: low and high word; `stream`; `iteration`, 0 without the operand). As
    the index is that of the global tensor, bits do not depend on how the tensor is cut. `stream` tells operations of one
    seed apart: a copy of the operation has its stream, and draws the same bits. Of an iteration 32 bits count.

    Without an iteration the operation is not folded, so that training can still give it one.

    ```mlir
    %b = loom.random_bits %i, %t seed = 42 stream = 3 : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xui32>
    ```

    **Constraints:**
    - L-RB1: `stream` is in [0, 2^32).
  }];
  let arguments = (ins StaticShapeTensorOf<[I64]>:$index, Optional<StaticShapeTensorOf<[I64]>>:$iteration, I64Attr:$seed, I64Attr:$stream);
  let results = (outs StaticShapeTensorOf<[UI32]>:$output);
  let assemblyFormat = "$index (`,` $iteration^)? `seed` `=` $seed `stream` `=` $stream attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let cycles = "200";
  let flops = "int64_t getFlops();";
}

def Loom_GeluOp : Loom_ElementwiseOp<"gelu", [SameOperandsAndResultType, DeclareOpInterfaceMethods<DecomposeInterface>]> {
  let summary = "Gaussian error linear unit (Hendrycks and Gimpel 2016, section 2)";
  let description = [{
    The form `erf` is x / 2 * (1 + erf(x / sqrt(2))); the form `tanh` approximates it by
    x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    ```mlir
    %y = loom.gelu tanh %x : tensor<2x3xf32>
    ```
  }];
  let arguments = (ins Loom_FloatTensor:$input, GeluAttr:$form);
  let results = (outs Loom_FloatTensor:$output);
  let assemblyFormat = "$form $input attr-dict `:` type($output)";
  let cycles = "20";
}

#endif
