import AppStore
package import Subscriptions

extension SubmissionIntake {
  /// Asks Apple for the transactions of an order of production, by the ID in Apple's email.
  ///
  /// - Returns: Nil without a key for the App Store Server API; empty for another app's order.
  package func transactions(ofAppleOrder id: String) async throws -> [TransactionKey]? {
    guard let serverAPI else { return nil }
    var transactions: [TransactionKey] = []
    for app in services.apps.all {
      let answer = try await serverAPI.orderLookup(id, in: app.bundleID)
      transactions += answer.content.transactions.compactMap { $0.value?.record.key }
    }
    return transactions
  }
}
