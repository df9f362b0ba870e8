/// What operators look at: each report answers one question about the books, by one definition.
///
/// The definition is the comment of a function or view `report_…` in `schema.sql`; each case has a
/// file of its own that says what can be chosen and which columns there are.
package enum Report: String, CaseIterable, Sendable {
  case subscriptions
  case active
  case trials
  case mrr
  case churn
  case renewalsDue = "renewals-due"
  case billingIssues = "billing-issues"
  case retention
  case revenue
  case refunds
  case reactivations
  case ownership
  case unclaimed
  case orders
  case intake
  case audit

  var shape: ReportShape {
    switch self {
    case .subscriptions: SubscriptionsReport.shape
    case .active: ActiveReport.shape
    case .trials: TrialsReport.shape
    case .mrr: RevenueRateReport.shape
    case .churn: ChurnReport.shape
    case .renewalsDue: RenewalsDueReport.shape
    case .billingIssues: BillingIssuesReport.shape
    case .retention: RetentionReport.shape
    case .revenue: RevenueReport.shape
    case .refunds: RefundsReport.shape
    case .reactivations: ReactivationsReport.shape
    case .ownership: OwnershipReport.shape
    case .unclaimed: UnclaimedReport.shape
    case .orders: OrdersReport.shape
    case .intake: IntakeReport.shape
    case .audit: AuditReport.shape
    }
  }
}
