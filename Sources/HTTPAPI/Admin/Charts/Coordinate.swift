/// A number of a picture, as text.
enum Coordinate {
  /// Writes a number with up to two decimals, and none that say nothing: `12.5`, `0`, `-3.33`.
  ///
  /// What is not a number is 0: no value ever breaks a picture, or says more than a number can.
  static func text(_ number: Double) -> String {
    guard number.isFinite, abs(number) < 1_000_000 else { return "0" }
    let hundredths = Int((number * 100).rounded())
    let (whole, rest) = hundredths.magnitude.quotientAndRemainder(dividingBy: 100)
    let sign = hundredths < 0 ? "-" : ""
    switch rest {
    case 0: return "\(sign)\(whole)"
    case _ where rest.isMultiple(of: 10): return "\(sign)\(whole).\(rest / 10)"
    default: return "\(sign)\(whole)." + (rest < 10 ? "0\(rest)" : "\(rest)")
    }
  }
}
