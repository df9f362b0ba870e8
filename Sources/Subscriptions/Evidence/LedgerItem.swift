/// Something learned or decided, appended as part of a ledger entry and never changed; the holdings are
/// a pure function of it.
package struct LedgerItem: Hashable, Codable, Sendable {
  package var line: OriginalTransactionKey
  /// From 1, without gaps, in each original transaction.
  package var number: Int
  package var recordedAt: Timestamp
  package var content: Content

  package init(line: OriginalTransactionKey, number: Int, recordedAt: Timestamp, content: Content) {
    (self.line, self.number, self.recordedAt, self.content) = (line, number, recordedAt, content)
  }

  package var recorded: RecordingOrder { RecordingOrder(at: recordedAt, number: number) }

  package enum Content: Hashable, Codable, Sendable {
    case evidence(Evidence)
    case action(OwnershipAction)
    case ownership(OwnershipChange)

    package var kind: Kind {
      switch self {
      case .evidence(.transaction): .transaction
      case .evidence(.renewalStatus): .renewalStatus
      case .evidence(.link): .link
      case .action(.claim): .claim
      case .action(.ownerOverride), .action(.importedOverride): .ownerOverride
      case .ownership(let change):
        switch change.action {
        case .decided: .decided
        case .claimed: .claimed
        case .corrected: .corrected
        case .placed: .placed
        }
      }
    }

    /// The date at which the evidence was true; nil for other contents.
    package var evidenceDate: Timestamp? {
      switch self {
      case .evidence(.transaction(let record)): record.asOf
      case .evidence(.renewalStatus(let status, _)): status.asOf
      case .evidence(.link), .action, .ownership: nil
      }
    }
  }

  /// Raw values are stored.
  package enum Kind: String, CaseIterable, Sendable {
    case transaction
    case renewalStatus = "renewal_status"
    case link
    case claim
    case ownerOverride = "placement"
    case decided
    case claimed
    case corrected
    case placed
  }
}

/// A charge's new decision: only this sets or changes an owner.
package struct OwnershipChange: Hashable, Codable, Sendable {
  /// The cause of the change.
  package enum Action: String, Codable, Sendable {
    /// Apple's evidence.
    case decided
    case claimed
    /// Late evidence from Apple that shows the recorded owner to be wrong.
    case corrected
    case placed
  }

  package var action: Action
  package var charge: Charge.ID
  package var previousOwner: AccountKey?
  package var decision: Decision

  package var changesOwner: Bool { previousOwner != decision.owner }
  /// Whether `charge` reports another charge, `decision.renewal.previous`, and has no decision now.
  package var retiresCharge: Bool { decision.renewal.reason == .reportsAnotherCharge }
}
