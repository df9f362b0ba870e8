extension Duration {
  /// How long this is in its two largest units, as in `6 d 3 h`; nothing is said of the sign.
  ///
  /// - Parameter isRough: Whether a small unit beside a large one is left out: hours beside a
  ///   hundred days, and seconds beside minutes.
  /// - Returns: The words.
  package func words(isRough: Bool = false) -> String {
    let units: [(name: String, seconds: UInt64)] = [
      ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1),
    ]
    let seconds = components.seconds.magnitude
    guard let first = units.dropLast().firstIndex(where: { seconds >= $0.seconds }) else {
      return "\(seconds) s"
    }
    let next = units[first + 1]
    let (whole, rest) = seconds.quotientAndRemainder(dividingBy: units[first].seconds)
    let more = rest / next.seconds
    let isLeftOut = more == 0 || isRough && (whole >= 100 || next.name == "s")
    return "\(whole) \(units[first].name)" + (isLeftOut ? "" : " \(more) \(next.name)")
  }
}
