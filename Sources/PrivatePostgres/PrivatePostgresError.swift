/// Why the private PostgreSQL could not be started or stopped.
package enum PrivatePostgresError: Error, CustomStringConvertible {
  case binariesNotFound(searched: [String])
  case directoryUnreachable(path: String, user: String)
  case noUnprivilegedUser
  case commandFailed(command: String, output: String)
  case didNotStart(String)
  case didNotStop(processID: Int32)
  case directoryIsBusy(path: String)

  package var description: String {
    switch self {
    case .binariesNotFound(let searched):
      """
      PostgreSQL's server programs (initdb, postgres) were not found in \
      \(searched.joined(separator: ", ")). Install them ("apt-get install postgresql" on Debian \
      and Ubuntu, "brew install postgresql" on macOS), or name a database with DATABASE_URL.
      """
    case .directoryUnreachable(let path, let user):
      """
      PostgreSQL doesn't run as root, and \(user), as whom it would run, cannot write to \
      \(path). Choose a directory elsewhere.
      """
    case .noUnprivilegedUser:
      "PostgreSQL doesn't run as root, and there is no user \"postgres\" or \"nobody\" for it."
    case .commandFailed(let command, let output):
      "\(command) failed: \(output)"
    case .didNotStart(let log):
      "The private PostgreSQL did not start. The end of its log: \(log)"
    case .didNotStop(let processID):
      "The private PostgreSQL (process \(processID)) did not stop."
    case .directoryIsBusy(let path):
      "Another process has been starting a PostgreSQL in \(path) for too long."
    }
  }
}
