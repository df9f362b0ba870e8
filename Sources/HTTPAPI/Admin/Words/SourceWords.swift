import Foundation
import LedgerStorage
import Subscriptions

/// What brought entries of the ledger, in words.
struct SourceWords: Sendable {
  private let notifications: [ExactText: NotificationSummary]
  private let submitters: [UUID: String]
  private let acts: PlacingActs

  /// Reads what there is to say of the sources of some entries.
  init(of entries: [HistoryEntry], in ledger: Ledger) async throws {
    let sources = Set(entries.map(\.source))
    acts = try await PlacingActs(of: entries, in: ledger)
    notifications = try await ledger.notificationSummaries(
      sources.filter { $0.kind == .notification }.compactMap(\.id))
    submitters = try await ledger.submitters(
      of: sources.filter { $0.kind == .receipt || $0.kind == .signedTransaction }
        .compactMap { $0.id.flatMap(UUID.init(uuidString:)) })
  }

  /// Says what an entry says, and what brought it.
  ///
  /// - Parameters:
  ///   - event: The entry in words.
  ///   - anchor: In the page; nil: nothing leads here.
  /// - Returns: It as a row.
  func fact(_ event: ChargeEvent, anchor: String? = nil) -> FactRow {
    let (entry, source) = (event.entry, event.source)
    let moment = entry.content.evidenceDate ?? entry.recordedAt
    let submitter = submitter(of: source)
    return FactRow(
      anchor: anchor, at: Moment(moment), sentence: event.sentence, source: source.kind.title,
      sourceClass: source.kind.symbol.rawValue, sourceDetail: detail(of: source),
      sourceID: submitter ?? source.id,
      sourceHref: submitter.map { PageAddress.account($0) }, reason: act(behind: event)?.reason,
      recordedAt: entry.recordedAt == moment ? nil : Moment(entry.recordedAt))
  }

  /// The administrator's act that brought an entry; nil: none did.
  func act(behind event: ChargeEvent) -> AdministratorAct? {
    acts.act(behind: (event.entry, event.source))
  }

  /// All about a source, for those who point at its mark.
  func text(of source: EntrySource) -> String {
    [source.kind.title, detail(of: source), submitter(of: source).map { "from \($0)" }]
      .compactMap(\.self).joined(separator: " ")
  }

  private func submitter(of source: EntrySource) -> String? {
    source.id.flatMap(UUID.init(uuidString:)).flatMap { submitters[$0] }
  }

  private func detail(of source: EntrySource) -> String? {
    switch source.kind {
    case .notification:
      source.id.flatMap { notifications[ExactText($0)] }.map {
        [$0.type, $0.subtype].compactMap(\.self).joined(separator: " ")
      }.flatMap { $0.isEmpty ? nil : $0 }
    case .receipt: "receipt"
    case .signedTransaction: "signed transactions"
    case .poll, .administrator, .import: nil
    }
  }
}

extension EntrySource.Kind {
  var title: String {
    switch self {
    case .receipt, .signedTransaction: "Submission"
    case .notification: "Notification"
    case .poll: "Poll"
    case .administrator: "Administrator"
    case .import: "Import"
    }
  }

  /// Its mark in a timeline.
  var symbol: TimelineSketch.Symbol {
    switch self {
    case .receipt, .signedTransaction: .submission
    case .notification: .notification
    case .poll: .poll
    case .administrator, .import: .administrator
    }
  }
}
