/// The templates of pages, by the names of their files; all others are parts of them.
enum PageTemplate: String, CaseIterable, Sendable {
  case account
  case action
  case done
  case drillDown = "drill-down"
  case error
  case login
  case originalTransaction = "original-transaction"
  case overview
  case parked
  case rejected
  case report
  case reports
  case search
  case unclaimed
}
