/// The template `login`: asks for an administrator's key.
struct LoginPage: Sendable {
  var page: PageFrame
  /// The path that was asked for before, to go on to.
  var returnTo: String
  /// Why the last try failed; the same words whatever was wrong.
  var fault: String?
}
