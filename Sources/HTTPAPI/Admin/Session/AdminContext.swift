/// What the administrator's pages know of a request.
struct AdminContext: Sendable {
  /// Nil: nobody is logged in.
  var session: AdminSession?
  /// What the last action did, to be told now.
  var flash: Flash?
  /// What was sent, once it was checked that it came from a page of ours.
  var form = FormFields()
}
