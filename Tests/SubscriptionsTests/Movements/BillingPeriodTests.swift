import Subscriptions
import Testing

/// The time that a charge pays for, and the amount per month.
struct BillingPeriodTests {
  @Test(
    "The period that a length comes nearest to",
    arguments: [
      (24, .day), (23, .day), (25, .day), (30, nil), (7 * 24, .week), (7 * 24 + 1, .week),
      (8 * 24, nil), (14 * 24, .twoWeeks), (20 * 24, nil), (28 * 24, .month), (31 * 24 + 1, .month),
      (34 * 24, nil), (59 * 24, .twoMonths), (62 * 24, .twoMonths), (75 * 24, nil),
      (89 * 24, .threeMonths), (92 * 24, .threeMonths), (120 * 24, nil), (181 * 24, .sixMonths),
      (184 * 24, .sixMonths), (365 * 24, .year), (366 * 24, .year), (730 * 24, nil), (0, nil),
      (-24, nil),
    ] as [(Int, BillingPeriod?)])
  func nearest(hours: Int, period: BillingPeriod?) {
    #expect(BillingPeriod(nearest: .hours(hours)) == period)
  }

  @Test(
    "The period that the catalogue means",
    arguments: [
      ("P1D", .day), ("P1W", .week), ("P7D", .week), ("P2W", .twoWeeks), ("P1M", .month),
      ("P30D", .month), ("P4W", .month), ("P2M", .twoMonths), ("P3M", .threeMonths),
      ("P6M", .sixMonths), ("P1Y", .year), ("P12M", .year), ("P365D", .year), ("P4M", nil),
      ("P2Y", nil), ("P100Y", nil),
    ] as [(String, BillingPeriod?)])
  func described(text: String, period: BillingPeriod?) {
    #expect(CalendarPeriod(iso8601: text).flatMap { BillingPeriod($0) } == period)
  }

  @Test(
    "What a price of twelve comes to in a month",
    arguments: [
      (.day, 360), (.week, 48), (.twoWeeks, 24), (.month, 12), (.twoMonths, 6),
      (.threeMonths, 4), (.sixMonths, 2), (.year, 1),
    ] as [(BillingPeriod, Int64)])
  func monthly(period: BillingPeriod, price: Int64) {
    #expect(period.monthlyTwelfths == price)
  }
}
