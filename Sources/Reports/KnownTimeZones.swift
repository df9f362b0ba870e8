import Synchronization

/// The names of time zones that the database was seen to know.
///
/// Asking it takes longer than many a report does: its list of them is a walk through all files of
/// the IANA database, each time. A name that is known stays so for as long as the program runs.
final class KnownTimeZones: Sendable {
  private let names = Mutex<Set<String>>([])

  /// Whether the database was seen to know a name.
  func contains(_ name: String) -> Bool { names.withLock { $0.contains(name) } }

  /// Remembers a name that the database knows.
  func insert(_ name: String) { names.withLock { _ = $0.insert(name) } }
}
