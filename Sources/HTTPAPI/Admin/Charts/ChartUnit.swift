/// What a chart's numbers are, and how they are written.
enum ChartUnit: Hashable, Sendable {
  case count
  /// Milliunits of a currency.
  case money(currency: String)
  /// Hundredths of a percent.
  case share

  /// Writes a value exactly, as in `1,284`, `1,284.50 USD` or `3.25 %`.
  func text(_ value: Int64) -> String {
    switch self {
    case .count: Self.grouped(value)
    case .money(let currency): Self.amount(value, currency) + " " + currency
    case .share: Self.decimal(value, places: 2, keeping: 1) + " %"
    }
  }

  /// Writes a value for an axis, as in `1.2k`; the currency stands elsewhere.
  func short(_ value: Int64) -> String {
    switch self {
    case .count: Self.short(value, places: 0)
    case .money: Self.short(value, places: 3)
    case .share: Self.decimal(value, places: 2, keeping: 0) + " %"
    }
  }

  // MARK: Digits

  /// ISO 4217's currencies without and with three decimals, of those in which Apple charges; all
  /// others have two.
  private static let places: [String: Int] = [
    "JPY": 0, "KRW": 0, "VND": 0, "CLP": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3,
  ]

  private static func amount(_ milliunits: Int64, _ currency: String) -> String {
    decimal(milliunits, places: 3, keeping: places[currency] ?? 2)
  }

  /// Writes a number with its thousands set apart.
  private static func grouped(_ value: Int64) -> String {
    (value < 0 ? "−" : "") + grouped(value.magnitude)
  }

  private static func grouped(_ value: UInt64) -> String {
    let digits = Array(String(value))
    return digits.indices.reduce(into: "") { text, index in
      if index > 0, (digits.count - index).isMultiple(of: 3) { text += "," }
      text.append(digits[index])
    }
  }

  /// Writes a number that counts parts of a whole one, without the zeros at its end beyond the
  /// places that are kept.
  private static func decimal(_ value: Int64, places: Int, keeping: Int) -> String {
    let scale = (0..<places).reduce(UInt64(1)) { power, _ in power * 10 }
    let (whole, rest) = value.magnitude.quotientAndRemainder(dividingBy: scale)
    var decimals = String(String(rest + scale).dropFirst())
    while decimals.count > keeping, decimals.hasSuffix("0") { decimals.removeLast() }
    return (value < 0 ? "−" : "") + grouped(whole) + (decimals.isEmpty ? "" : "." + decimals)
  }

  /// Writes a number in thousands, millions and so on, with up to two decimals, rounded towards
  /// zero.
  private static func short(_ value: Int64, places: Int) -> String {
    let unit = (0..<places).reduce(UInt64(1)) { power, _ in power * 10 }
    var (scale, suffix) = (unit, "")
    for next in ["k", "M", "G", "T"] {
      guard value.magnitude / scale >= 1000 else { break }
      (scale, suffix) = (scale * 1000, next)
    }
    let (whole, rest) = value.magnitude.quotientAndRemainder(dividingBy: scale)
    let hundredths = scale >= 100 ? rest / (scale / 100) : rest * (100 / scale)
    let signed = Int64(whole * 100 + hundredths) * (value < 0 ? -1 : 1)
    return decimal(signed, places: 2, keeping: 0) + suffix
  }
}
