import AppStore
package import Subscriptions

extension SubmissionIntake {
  /// Asks Apple for the transactions of an order, by the ID in Apple's email to the customer.
  ///
  /// Apple knows orders of production only.
  ///
  /// - Returns: Nil without a key for the App Store Server API; empty if the order is of another app.
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
