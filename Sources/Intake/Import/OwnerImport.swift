import Foundation
package import LedgerStorage
package import Subscriptions

/// Imports a file of owners, as `tenure import` does.
///
/// No progress is stored: an interrupted import is run again, and skips known rows much faster than
/// it recorded them.
package struct OwnerImport: Sendable {
  /// Rows per database transaction: enough to amortize the commit, few enough to retry cheaply.
  package static let chunk = 2000
  /// Concurrent chunks: PostgreSQL writes one while the next is prepared.
  package static let writers = 2

  package let ledger: Ledger
  package let terms: AccessTerms
  /// The source that ledger entries name.
  package let source: String
  /// The point in time that the file reflects.
  package let asOf: Timestamp
  package let isDryRun: Bool
  package let now: @Sendable () -> Timestamp
  /// The total size of receipts that ends a chunk early.
  package var chunkBytes = 16 << 20

  package init(
    ledger: Ledger, terms: AccessTerms, source: String, asOf: Timestamp, isDryRun: Bool,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.terms = terms
    self.source = source
    self.asOf = asOf
    self.isDryRun = isDryRun
    self.now = now
  }

  package struct Summary: Hashable, Sendable {
    package var lines = 0
    package var recorded = 0
    package var known = 0
    /// Rows that repeat an earlier row of the file.
    package var repeated = 0
    package var errors = 0
    package var bytesRead = 0
  }

  package struct RowError: Hashable, Sendable {
    package var line: Int
    package var fault: RowFault
  }

  /// Imports the whole file, and reports errors in the order of the lines.
  package func run(
    _ file: consuming RowFile, report: (RowError) throws -> Void, progress: (Summary) -> Void
  ) async throws -> Summary {
    var file = file
    var summary = Summary()
    var seen = SeenOwners()
    var isOver = false
    while !isOver {
      var chunks: [[Item]] = []
      for _ in 0..<Self.writers where !isOver {
        var items: [Item] = []
        var bytes = 0
        while items.count < Self.chunk, bytes < chunkBytes {
          guard let row = try file.next() else {
            isOver = true
            break
          }
          summary.lines += 1
          if let item = item(row, seen: &seen) {
            items.append(item)
            if case .success(let owner) = item.owner { bytes += owner.receipt?.utf8.count ?? 0 }
          } else {
            summary.repeated += 1
          }
        }
        chunks.append(items)
      }
      for items in try await record(chunks) {
        for item in items {
          switch item.outcome {
          case .success(.recorded): summary.recorded += 1
          case .success: summary.known += 1
          case .failure(let fault):
            summary.errors += 1
            try report(RowError(line: item.line, fault: fault))
          }
        }
      }
      summary.bytesRead = file.bytesRead
      progress(summary)
    }
    return summary
  }

  // MARK: Parts

  private typealias Item = (line: Int, owner: Result<ImportedOwner, RowFault>)
  private typealias Done = (line: Int, outcome: Result<ImportVerdict, RowFault>)

  /// Parses a row; nil if it repeats an earlier one.
  private func item(_ row: FileRow, seen: inout SeenOwners) -> Item? {
    let owner = row.values.flatMap { OwnerRow.owner($0, asOf: asOf) }
    guard case .success(let imported) = owner else { return (row.line, owner) }
    switch seen.add(imported) {
    case .new: return (row.line, owner)
    case .repeated: return nil
    case .contradicted:
      let reason = "An earlier line assigns \(imported.line) to another account."
      return (row.line, .failure(RowFault("different_accounts", reason)))
    }
  }

  private func record(_ chunks: [[Item]]) async throws -> [[Done]] {
    try await withThrowingTaskGroup(of: (Int, [Done]).self) { group in
      for (index, items) in chunks.enumerated() {
        group.addTask { (index, try await record(items)) }
      }
      var done: [[Done]] = Array(repeating: [], count: chunks.count)
      for try await (index, items) in group { done[index] = items }
      return done
    }
  }

  private func record(_ items: [Item]) async throws -> [Done] {
    let owners = items.compactMap { try? $0.owner.get() }
    var verdicts = try await ledger.imports.importOwners(
      owners, from: source, isDryRun: isDryRun, terms: terms, at: now()
    ).makeIterator()
    return items.map { line, owner in
      let outcome = owner.flatMap { owner -> Result<ImportVerdict, RowFault> in
        switch verdicts.next() {
        case .recorded?: .success(.recorded)
        case .known?: .success(.known)
        case .ownedByAnotherAccount(let other)?:
          .failure(
            RowFault(
              "owned_by_another_account",
              "\(owner.line) belongs to \(other) in Tenure; nothing was changed."))
        case .accountErased?:
          .failure(
            RowFault("account_erased", "The account \(owner.accountID.quotable) was erased."))
        case nil: preconditionFailure("Each owner has a verdict.")
        }
      }
      return (line, outcome)
    }
  }
}

/// The owners in a file so far, in sixteen bytes each.
package struct SeenOwners {
  package enum Addition { case new, repeated, contradicted }

  private var accounts: [Int: Int] = [:]

  /// Adds an owner by 64-bit hashes: a collision among millions is rarer than a disk failure.
  package mutating func add(_ owner: ImportedOwner) -> Addition {
    let (line, account) = (owner.line.hashValue, AccountID(owner.accountID).hashValue)
    guard let known = accounts[line] else {
      accounts[line] = account
      return .new
    }
    return known == account ? .repeated : .contradicted
  }
}
