/// A connection's prepared statements by text and types, without I/O; evicts the least recently
/// used.
struct StatementCache {
  private struct Key: Hashable {
    let text: String
    let parameters: [SQL.Parameter]

    static func == (left: Key, right: Key) -> Bool {
      left.text == right.text
        && left.parameters.elementsEqual(right.parameters) { $0.type == $1.type }
    }

    func hash(into hasher: inout Hasher) { hasher.combine(text) }
  }

  enum Lookup: Equatable {
    case prepared(name: String)
    case mustPrepare(name: String)
  }

  let capacity: Int
  private let mark: String
  private var entries: [Key: (name: String, lastUse: Int)] = [:]
  private var uses = 0
  private var evicted: [String] = []

  init(capacity: Int, mark: String = "") {
    self.capacity = max(1, capacity)
    self.mark = mark
  }

  /// Makes a suffix that no other connection has: in transaction mode, PgBouncer lets connections
  /// share a server session, where one would find another's statement.
  static func randomMark() -> String { "_" + String(UInt64.random(in: .min ... .max), radix: 36) }

  var count: Int { entries.count }

  /// Finds or assigns a statement's name; names are never reused on a connection.
  mutating func lookUp(_ sql: SQL) -> Lookup {
    uses += 1
    let key = Key(text: sql.text, parameters: sql.parameters)
    if let index = entries.index(forKey: key) {
      entries.values[index].lastUse = uses
      return .prepared(name: entries.values[index].name)
    }
    if entries.count >= capacity { evictOldest() }
    let name = "s\(uses)\(mark)"
    entries[key] = (name, uses)
    return .mustPrepare(name: name)
  }

  /// Removes a statement that could not be prepared, or that the server calls stale or missing; not
  /// deallocated, because that could fail after an error: at worst, an unused plan remains.
  mutating func forget(name: String) {
    guard let key = entries.first(where: { $0.value.name == name })?.key else { return }
    entries[key] = nil
  }

  /// The names evicted since the last call, for the connection to deallocate.
  mutating func takeEvicted() -> [String] {
    guard !evicted.isEmpty else { return [] }
    defer { evicted.removeAll() }
    return evicted
  }

  /// A linear search: a few hundred entries at most, and only for a new statement in a full cache.
  private mutating func evictOldest() {
    guard let oldest = entries.min(by: { $0.value.lastUse < $1.value.lastUse }) else { return }
    evicted.append(oldest.value.name)
    entries[oldest.key] = nil
  }
}
