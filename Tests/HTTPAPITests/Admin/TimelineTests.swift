import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

struct TimelineTests {
  private func day(_ month: Int, _ day: Int) -> Timestamp {
    Timestamp(CalendarDate(year: 2026, month: month, day: day))
  }

  private func owner(_ number: Int, _ name: String) -> TimelineOwner {
    TimelineOwner(
      ownerClass: TimelineOwner.ownerClass(number), letter: TimelineOwner.letter(number),
      name: name, note: "")
  }

  /// A's month, refunded on its tenth day; then B's two quarters, auto-renew off in the second.
  private func life() -> TimelineChart {
    TimelineChart(
      originalTransactionID: "1", now: day(6, 15),
      periods: [
        TimelineChart.Period(
          from: day(1, 1), until: day(2, 1), endedAt: day(1, 10), refundedAt: day(1, 10),
          productID: "monthly", owner: 1, text: "1: refunded", href: "#charge-1"),
        TimelineChart.Period(
          from: day(2, 10), until: day(5, 10), productID: "quarterly", owner: 2, text: "2"),
        TimelineChart.Period(
          from: day(5, 10), until: day(8, 10), productID: "quarterly", owner: 2, text: "3"),
      ],
      bindings: [
        (at: day(1, 1), owner: 1, text: "to A"),
        (at: day(2, 10), owner: 2, text: "to B"),
      ],
      troubles: [
        TimelineLayout.Span(from: day(5, 10), until: day(5, 16), isGrace: true)
      ],
      renewing: [(day(1, 1), day(1, 10)), (day(2, 10), day(6, 1))],
      switches: [
        (at: day(1, 10), isOn: false, text: "off", href: nil),
        (at: day(2, 10), isOn: true, text: "on", href: nil),
        (at: day(6, 1), isOn: false, text: "off", href: nil),
        (at: day(6, 2), isOn: false, text: "off again", href: nil),
      ],
      messages: [
        TimelineLayout.Mark(source: .notification, at: day(1, 1), text: "SUBSCRIBED"),
        TimelineLayout.Mark(source: .submission, at: day(1, 1), text: "from A"),
        TimelineLayout.Mark(source: .poll, at: day(5, 10), text: "renewed"),
      ],
      owners: [owner(1, "a"), owner(2, "b")])
  }

  private func lane(_ label: String) throws -> TimelineLayout.Lane {
    try #require(TimelineLayout(life()).lanes.first { $0.label == label })
  }

  @Test func `products follow each other, and what was taken back has none`() throws {
    let spans = try lane("Product").spans
    #expect(spans.map(\.label) == ["monthly", "quarterly"])
    #expect(spans.map(\.from) == [day(1, 1), day(2, 10)])
    #expect(spans.map(\.until) == [day(1, 10), day(8, 10)])
  }

  @Test func `each binding lasts until the next, and its move is marked`() throws {
    let lane = try lane("Owner")
    #expect(lane.spans.map(\.label) == ["A a", "B b"])
    #expect(lane.spans.map(\.classNames) == ["span-bound owner-1", "span-bound owner-2"])
    #expect(lane.spans.map(\.until) == [day(2, 10), day(8, 10)])
    #expect(lane.marks.map(\.at) == [day(2, 10)])
    #expect(TimelineLayout(life()).rules.map { $0.at } == [day(2, 10)])
  }

  @Test func `a former owner has a lane, which only then is there`() throws {
    var life = life()
    #expect(!TimelineLayout(life).lanes.contains { $0.label == "Former owner" })
    life.former = [(from: day(2, 10), until: day(3, 1), owner: 1, text: "a owned 1 charge")]
    let lane = TimelineLayout(life).lanes[2]
    #expect(lane.label == "Former owner")
    #expect(lane.spans.map(\.label) == ["A a"])
    #expect(TimelinePicture(TimelineLayout(life)).labelWidth == 92)
  }

  @Test func `a refund ends its period, and the rest is outlined`() throws {
    let lane = try lane("Periods")
    #expect(
      lane.spans.map(\.text) == [
        "1: refunded", "1: refunded", "2", "3", "10 May 2026 to 16 May 2026: grace period",
      ])
    #expect(lane.spans.map(\.from) == [day(1, 10), day(1, 1), day(2, 10), day(5, 10), day(5, 10)])
    #expect(lane.spans.map(\.until) == [day(2, 1), day(1, 10), day(5, 10), day(8, 10), day(5, 16)])
    #expect(lane.spans.map(\.pattern) == [nil, .refunded, nil, nil, .grace])
    #expect(lane.spans.map(\.label) == [nil, "A", "B", "B", nil])
    #expect(lane.marks.map(\.symbol) == [.refund])
    #expect(lane.marks.map(\.at) == [day(1, 10)])
  }

  @Test func `auto-renew has a lane, with its switches`() throws {
    let lane = try lane("Auto-renew")
    #expect(lane.spans.map(\.from) == [day(1, 1), day(2, 10)])
    #expect(lane.spans.map(\.until) == [day(1, 10), day(6, 1)])
    #expect(lane.marks.map(\.symbol) == [.off, .on, .off, .off])
  }

  @Test func `what came at once does not cover itself`() throws {
    #expect(try lane("Sources").marks.map(\.offset) == [5, 17, 29])
  }

  @Test func `places are percents of the axis and pixels from the top`() throws {
    let sketch = TimelineLayout(
      id: "t", title: "", description: "", from: day(1, 1), until: day(1, 11), now: day(1, 6),
      lanes: [
        TimelineLayout.Lane(
          label: "Above", height: 16,
          spans: [
            TimelineLayout.Span(
              from: day(1, 2), until: day(1, 4), classNames: "span-product", text: "two days"),
            // Begins before the axis and has no length.
            TimelineLayout.Span(
              from: Timestamp(milliseconds: 0), until: Timestamp(milliseconds: 0),
              classNames: "span-product", text: "nothing", inset: 4),
          ]),
        TimelineLayout.Lane(
          label: "Below", height: 20,
          marks: [TimelineLayout.Mark(at: day(1, 11), symbol: .poll, text: "", offset: 10)]),
      ])
    let picture = TimelinePicture(sketch)
    #expect(picture.spans.map(\.x) == ["10", "0"])
    #expect(picture.spans.map(\.width) == ["20", "0.15"])
    #expect(picture.spans.map(\.y) == [2, 6])
    #expect(picture.spans.map(\.height) == [16, 8])
    #expect(picture.marks.map(\.x) == ["100"])
    #expect(picture.marks.map(\.y) == [38])
    #expect(picture.lanes.map(\.bottom) == [23, 53])
    #expect((picture.height, picture.fullHeight) == (66, 90))
    #expect(picture.nowX == "50")
    #expect(!picture.isNowEarly)
    #expect(picture.signs.map(\.label) == ["poll"])
    #expect(
      picture.ticks.map(\.label)
        == ["1 Jan 2026", "", "5 Jan", "7 Jan", "9 Jan", "11 Jan"])
  }

  @Test func `the label of the present stands behind it where there is no room before it`() {
    var sketch = TimelineLayout(life())
    sketch.now = sketch.from
    #expect(TimelinePicture(sketch).isNowEarly)
  }

  @Test func `the present is not drawn where the picture does not have it`() {
    var sketch = TimelineLayout(life())
    sketch.now = day(12, 31)
    #expect(TimelinePicture(sketch).nowX == nil)
  }

  @Test(
    "A timeline is as wide as its fullest lane needs",
    arguments: [
      (0, "timeline-short"), (12, "timeline-short"), (13, "timeline-medium"),
      (41, "timeline-long"),
    ])
  func widths(spans: Int, expected: String) {
    let span = TimelineLayout.Span(
      from: day(1, 1), until: day(1, 2), classNames: "span-product", text: "")
    let sketch = TimelineLayout(
      id: "t", title: "", description: "", from: day(1, 1), until: day(1, 1), now: day(1, 1),
      lanes: [
        TimelineLayout.Lane(label: "", height: 10, spans: Array(repeating: span, count: spans))
      ])
    #expect(TimelinePicture(sketch).widthClass == expected)
  }

  @Test func `a life without charges is a picture all the same`() {
    let picture = TimelinePicture(
      TimelineLayout(
        TimelineChart(
          originalTransactionID: "1", now: day(1, 1), periods: [], bindings: [], owners: [])))
    #expect(picture.spans.isEmpty)
    #expect(picture.lanes.count == 5)
  }

  @Test(
    "Owners have a colour and a letter of their own, as far as these go",
    arguments: [
      (0, "owner-0", "–"), (1, "owner-1", "A"), (6, "owner-6", "F"), (7, "owner-1", "G"),
      (26, "owner-2", "Z"), (27, "owner-3", "A2"), (53, "owner-5", "A3"),
    ])
  func owners(number: Int, ownerClass: String, letter: String) {
    #expect(TimelineOwner.ownerClass(number) == ownerClass)
    #expect(TimelineOwner.letter(number) == letter)
  }
}
