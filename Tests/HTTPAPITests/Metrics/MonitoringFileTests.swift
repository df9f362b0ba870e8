import Foundation
import Observability
import Testing
import Yams

@testable import HTTPAPI

/// Dashboard and alert rules ask for metrics and labels that there are.
struct MonitoringFileTests {
  /// Labels that Prometheus adds to every series.
  private static let targetLabels: Set = ["instance", "job", "le"]

  /// Metrics, with the labels that are asked of each, in an expression.
  private static func uses(in expression: String) -> [(metric: String, labels: Set<String>)] {
    let use = /\b((?:tenure|process)_[a-z_]+)(?:\x7B((?:[^\x7D\x22]|\x22[^\x22]*\x22)*)\x7D)?/
    return expression.matches(of: use).map { match in
      let matchers = match.2.map(String.init) ?? ""
      let labels = matchers.matches(of: /([a-z_]+)\s*(?:=~|!~|!=|=)/).map { String($0.1) }
      return (String(match.1), Set(labels))
    }
  }

  /// The labels by which an expression groups.
  private static func groupings(in expression: String) -> Set<String> {
    let lists = expression.matches(of: /\bby\s*\(([a-z_, ]*)\)/).map { String($0.1) }
    return Set(
      lists.flatMap { $0.split { !$0.isLetter && $0 != "_" }.map(String.init) })
  }

  private static func faults(of expression: String) -> [String] {
    let samples = Dictionary(
      MetricDeclaration.tenure.flatMap { metric in
        metric.sampleNames.map { ($0, Set(metric.labels)) }
      }
    ) { first, _ in first }
    var faults: [String] = []
    var known = targetLabels
    for (metric, asked) in uses(in: expression) {
      guard let labels = samples[metric] else {
        faults.append("there is no \(metric)")
        continue
      }
      known.formUnion(labels)
      faults += asked.subtracting(labels.union(targetLabels)).map { "\(metric) has no \($0)" }
    }
    if uses(in: expression).isEmpty { faults.append("it asks for nothing of ours") }
    return faults + groupings(in: expression).subtracting(known).map { "nothing has \($0)" }
  }

  private static var dashboardExpressions: [String] {
    get throws {
      let json = try JSONSerialization.jsonObject(with: Data(MonitoringFiles.dashboard.utf8))
      let panels = try #require((json as? [String: Any])?["panels"] as? [[String: Any]])
      return panels.flatMap { panel in
        (panel["targets"] as? [[String: Any]] ?? []).compactMap { $0["expr"] as? String }
      }
    }
  }

  private static var rules: [[String: Any]] {
    get throws {
      let yaml = try Yams.load(yaml: MonitoringFiles.alerts) as? [String: Any]
      let groups = try #require(yaml?["groups"] as? [[String: Any]])
      return groups.flatMap { $0["rules"] as? [[String: Any]] ?? [] }
    }
  }

  @Test func `the dashboard asks for what there is`() throws {
    let expressions = try Self.dashboardExpressions
    #expect(expressions.count > 30)
    for expression in expressions {
      #expect(Self.faults(of: expression) == [], "\(expression)")
    }
  }

  @Test func `every metric is on the dashboard`() throws {
    let shown = Set(
      try Self.dashboardExpressions.flatMap(Self.uses).map(\.metric))
    for metric in MetricDeclaration.tenure {
      #expect(!shown.isDisjoint(with: metric.sampleNames), "\(metric.name)")
    }
  }

  @Test func `every alert asks for what there is, and says what to do`() throws {
    let rules = try Self.rules
    #expect(rules.count > 15)
    for rule in rules {
      let name = try #require(rule["alert"] as? String)
      let expression = try #require(rule["expr"] as? String, "\(name)")
      #expect(Self.faults(of: expression) == [], "\(name)")
      let annotations = rule["annotations"] as? [String: Any]
      #expect((annotations?["summary"] as? String)?.isEmpty == false, "\(name)")
      #expect((annotations?["description"] as? String)?.isEmpty == false, "\(name)")
      let severity = (rule["labels"] as? [String: Any])?["severity"] as? String
      #expect(["warning", "critical"].contains(severity), "\(name)")
    }
    #expect(Set(rules.compactMap { $0["alert"] as? String }).count == rules.count)
  }

  @Test(arguments: [
    // expression, a fault
    ("rate(tenure_htp_requests_total[5m])", "there is no tenure_htp_requests_total"),
    (#"tenure_jobs_due{kind="a"}"#, "tenure_jobs_due has no kind"),
    ("sum by (rule) (tenure_jobs_due)", "nothing has rule"),
    ("tenure_job_duration_seconds", "there is no tenure_job_duration_seconds"),
    ("up == 0", "it asks for nothing of ours"),
  ])
  func `a wrong expression is found`(expression: String, fault: String) {
    #expect(Self.faults(of: expression) == [fault])
  }

  @Test func `every metric is explained to operators`() throws {
    let file = (0..<4).reduce(URL(filePath: #filePath)) { url, _ in
      url.deletingLastPathComponent()
    }.appending(path: "Sources/HTTPAPI/HTTPAPI.docc/Operating.md")
    let text = try String(contentsOf: file, encoding: .utf8)
    // The rows of its table.
    let row = /^\| `((?:tenure|process)_[a-z_]+)` \|/
    let named = Set(
      text.split(separator: "\n").compactMap { $0.firstMatch(of: row) }.map { String($0.1) })
    #expect(named == Set(MetricDeclaration.tenure.map(\.name)))
  }
}
