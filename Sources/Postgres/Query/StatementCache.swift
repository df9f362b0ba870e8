/// Which statements one connection has prepared, by text and parameter types; the least recently
/// used give way.
///
/// Pure bookkeeping: it says what to prepare and what to deallocate, and somebody else does it.
struct StatementCache {
  /// A statement as the server tells them apart.
  private struct Key: Hashable {
    let text: String
    let parameters: [SQL.Parameter]

    static func == (left: Key, right: Key) -> Bool {
      left.text == right.text
        && left.parameters.elementsEqual(right.parameters) { $0.type == $1.type }
    }

    func hash(into hasher: inout Hasher) {
      hasher.combine(text)
    }
  }

  private struct Entry {
    let name: String
    var lastUse: Int
  }

  enum Lookup: Equatable {
    case prepared(name: String)
    case mustPrepare(name: String)
  }

  let capacity: Int
  /// What the names of this connection's statements end with.
  private let mark: String
  private var entries: [Key: Entry] = [:]
  private var uses = 0
  private var evicted: [String] = []

  init(capacity: Int, mark: String = "") {
    self.capacity = max(1, capacity)
    self.mark = mark
  }

  /// Makes a mark that no other connection has.
  ///
  /// A PgBouncer that pools transactions lets many connections use one session of the server. By
  /// its name no statement of another is ever found there: one's own is, or none.
  static func randomMark() -> String {
    "_" + String(UInt64.random(in: .min ... .max), radix: 36)
  }

  var count: Int { entries.count }

  /// Finds a statement's name, or gives it one; names are never used twice on a connection.
  mutating func lookUp(_ sql: SQL) -> Lookup {
    uses += 1
    let key = Key(text: sql.text, parameters: sql.parameters)
    if let index = entries.index(forKey: key) {
      entries.values[index].lastUse = uses
      return .prepared(name: entries.values[index].name)
    }
    if entries.count >= capacity { evictOldest() }
    let name = "s\(uses)\(mark)"
    entries[key] = Entry(name: name, lastUse: uses)
    return .mustPrepare(name: name)
  }

  /// Forgets a statement which could not be prepared, or which the server says is stale or missing.
  ///
  /// It is not deallocated: after an error the server may not have it, and DEALLOCATE would fail.
  /// What stays behind is one plan, rarely.
  mutating func forget(name: String) {
    guard let key = entries.first(where: { $0.value.name == name })?.key else { return }
    entries[key] = nil
  }

  /// The names that have given way since the last call, for the connection to deallocate.
  mutating func takeEvicted() -> [String] {
    guard !evicted.isEmpty else { return [] }
    defer { evicted.removeAll() }
    return evicted
  }

  /// A walk over all entries: at most a few hundred, and only when a new statement meets a full
  /// cache.
  private mutating func evictOldest() {
    guard let oldest = entries.min(by: { $0.value.lastUse < $1.value.lastUse }) else { return }
    evicted.append(oldest.value.name)
    entries[oldest.key] = nil
  }
}
