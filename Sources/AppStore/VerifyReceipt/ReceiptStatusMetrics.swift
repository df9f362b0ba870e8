import CoreMetrics

/// Counts what verifyReceipt says, by its status.
final class ReceiptStatusMetrics: Sendable {
  /// Apple's statuses; whatever else is answered counts as `other`, for anybody could answer it.
  private static let known = [0] + Array(21_000...21_010)

  private let statuses: [Int: Counter]
  private let other: Counter

  init(_ factory: any MetricsFactory) {
    func counter(_ status: String) -> Counter {
      Counter(
        label: "tenure_apple_receipt_statuses_total", dimensions: [("status", status)],
        factory: factory)
    }
    statuses = Dictionary(uniqueKeysWithValues: Self.known.map { ($0, counter("\($0)")) })
    other = counter("other")
  }

  func count(_ status: Int) {
    (statuses[status] ?? other).increment()
  }
}
