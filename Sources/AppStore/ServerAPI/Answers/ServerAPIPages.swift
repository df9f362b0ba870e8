import Subscriptions

/// One page of a list that Apple gives out twenty at a time.
package protocol ServerAPIPage: Hashable, Sendable {
  /// What the next page is asked for with.
  var next: String? { get }
  var hasMore: Bool { get }
}

/// A list, page by page, each asked for when the one before it is done with.
///
/// The same query goes with every page, to the environment that gave the first one. An error ends
/// the list; what was read before it is good, and whoever keeps what the last page names as the
/// next can go on from there.
package struct ServerAPIPages<Page: ServerAPIPage>: AsyncSequence, Sendable {
  /// A page, and the environment that gave it.
  package typealias Element = ServerAPIAnswer<Page>

  let endpoint: ServerAPIEndpoint
  let token: String?
  let environment: Environment?
  /// A list that has more pages never ends: twenty times as many transactions as one Apple account
  /// can sensibly have, unless told otherwise.
  var pageLimit = 10_000
  let ask: @Sendable (String?, Environment?) async throws -> ServerAPIAnswer<Page>

  package func makeAsyncIterator() -> Iterator {
    Iterator(pages: self, token: token, environment: environment)
  }

  /// Where a reader stands in the list.
  package struct Iterator: AsyncIteratorProtocol {
    fileprivate let pages: ServerAPIPages
    fileprivate var token: String?
    fileprivate var environment: Environment?
    private var count = 0
    private var isAtEnd = false
    /// What is wrong with the list, told after the page that shows it.
    private var fault: AppStoreServerAPIError?

    fileprivate init(pages: ServerAPIPages, token: String?, environment: Environment?) {
      self.pages = pages
      self.token = token
      self.environment = environment
    }

    /// Asks for the next page; nil after the last one.
    package mutating func next() async throws -> ServerAPIAnswer<Page>? {
      guard !isAtEnd else { return nil }
      isAtEnd = true
      if let fault { throw fault }
      let answer = try await pages.ask(token, environment)
      count += 1
      isAtEnd = !answer.content.hasMore
      // A list that stands still, or never ends, is a fault of the server's.
      if answer.content.next == nil || answer.content.next == token
        || count == pages.pageLimit
      {
        fault = AppStoreServerAPIError(
          .unexpectedAnswer, pages.endpoint, answer.environment,
          message: "it says that there is more, and not where", isRetryable: false)
      }
      token = answer.content.next
      environment = answer.environment
      return answer
    }
  }
}
