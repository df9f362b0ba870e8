import CoreMetrics
import Testing

@testable import Observability

/// Metrics in Prometheus's text format.
struct PrometheusRegistryTests {
  private static let declarations: [MetricDeclaration] = [
    .counter("a_total", "Counts \\ and\nmore", by: ["who", "why"]),
    .gauge("b", "Rises and falls"),
    .histogram("c_seconds", [0.001, 0.5, 2], "Takes time", by: ["who"]),
    .reading("d", "Is read"),
  ]

  @Test func `everything that was counted is exported, with its type and meaning`() {
    let metrics = PrometheusRegistry(Self.declarations)
    let counter = Counter(
      label: "a_total", dimensions: [("why", "x\"\\\ny"), ("who", "me")], factory: metrics)
    counter.increment(by: 2)
    counter.increment()
    let gauge = Meter(label: "b", factory: metrics)
    gauge.set(2.5)
    gauge.increment()
    gauge.decrement(by: 0.25)
    let timer = CoreMetrics.Timer(
      label: "c_seconds", dimensions: [("who", "me")], factory: metrics)
    for milliseconds in [1, 2, 500, 501, 3000] { timer.recordMilliseconds(milliseconds) }
    #expect(
      metrics.exposition() == """
        # HELP a_total Counts \\\\ and\\nmore
        # TYPE a_total counter
        a_total{who="me",why="x\\"\\\\\\ny"} 3
        # HELP b Rises and falls
        # TYPE b gauge
        b 3.25
        # HELP c_seconds Takes time
        # TYPE c_seconds histogram
        c_seconds_bucket{who="me",le="0.001"} 1
        c_seconds_bucket{who="me",le="0.5"} 3
        c_seconds_bucket{who="me",le="2"} 4
        c_seconds_bucket{who="me",le="+Inf"} 5
        c_seconds_sum{who="me"} 4.004
        c_seconds_count{who="me"} 5

        """)
    #expect(metrics.refused.isEmpty)
  }

  @Test func `what is read is left out where it could not be`() {
    let metrics = PrometheusRegistry(Self.declarations)
    Meter(label: "d", factory: metrics).set(1)
    #expect(metrics.exposition(withReadings: true).contains("\nd 1\n"))
    #expect(metrics.exposition(withReadings: false).isEmpty)
  }

  @Test(arguments: [
    // a gauge's value, its text
    (1.0, "1"), (0.1, "0.1"), (.infinity, "+Inf"), (-.infinity, "-Inf"), (.nan, "NaN"),
    (1e15, "1000000000000000"),
  ])
  func `numbers are written as Go reads them`(value: Double, text: String) {
    let metrics = PrometheusRegistry(Self.declarations)
    Meter(label: "b", factory: metrics).set(value)
    #expect(metrics.exposition().hasSuffix("\nb \(text)\n"))
  }

  @Test func `what is not declared so is refused`() {
    let metrics = PrometheusRegistry(Self.declarations)
    Counter(label: "unheard_of_total", factory: metrics).increment()
    Counter(label: "a_total", dimensions: [("who", "me")], factory: metrics).increment()
    Counter(
      label: "a_total", dimensions: [("who", "me"), ("where", "here")], factory: metrics
    ).increment()
    Counter(label: "b", factory: metrics).increment()
    CoreMetrics.Timer(label: "b", factory: metrics).recordSeconds(1)
    #expect(metrics.exposition().isEmpty)
    #expect(metrics.refused == ["unheard_of_total", "a_total", "b"])
  }

  @Test func `one metric has only so many series`() {
    let metrics = PrometheusRegistry(Self.declarations)
    for number in 0...PrometheusRegistry.seriesLimit {
      Counter(
        label: "a_total", dimensions: [("who", "\(number)"), ("why", "")], factory: metrics
      ).increment()
    }
    let lines = metrics.exposition().split(separator: "\n").filter { $0.hasPrefix("a_total{") }
    #expect(lines.count == PrometheusRegistry.seriesLimit)
    #expect(metrics.refused == ["a_total"])
  }

  @Test func `two handles of the same labels count together`() async {
    let metrics = PrometheusRegistry(Self.declarations)
    let labels = [("who", "me"), ("why", "so")]
    await withDiscardingTaskGroup { group in
      for _ in 0..<8 {
        group.addTask {
          let counter = Counter(label: "a_total", dimensions: labels, factory: metrics)
          let gauge = Meter(label: "b", factory: metrics)
          for _ in 0..<1000 {
            counter.increment()
            gauge.increment()
          }
        }
      }
    }
    #expect(metrics.exposition().contains(#"a_total{who="me",why="so"} 8000"#))
    #expect(metrics.exposition().contains("\nb 8000\n"))
  }

  @Test func `Tenure's metrics are named as Prometheus wants it`() {
    let all = MetricDeclaration.tenure
    #expect(Set(all.map(\.name)).count == all.count)
    for metric in all {
      #expect(metric.isWellFormed, "\(metric.name)")
      #expect(!metric.help.hasSuffix("."), "\(metric.name)")
      switch metric.kind {
      case .counter: #expect(metric.name.hasSuffix("_total"))
      case .gauge: #expect(!metric.name.hasSuffix("_total"))
      case .histogram:
        #expect(metric.name.hasSuffix("_seconds"))
        #expect(metric.bounds == metric.bounds.sorted())
        #expect(metric.bounds.count <= PrometheusHistogram.boundLimit)
      }
    }
  }

  @Test(arguments: ["", "1a", "a-b", "A", "a b"])
  func `a name that Prometheus does not take is found`(name: String) {
    #expect(!MetricDeclaration.gauge(name, "").isWellFormed)
    #expect(!MetricDeclaration.gauge("a", "", by: [name]).isWellFormed)
  }
}
