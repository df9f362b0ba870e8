internal import CLibpq
internal import Foundation

/// The only owner of a libpq connection, closed in deinit; may move between threads but must not be
/// used by two at once.
@safe
struct ConnectionHandle: ~Copyable, @unchecked Sendable {
  private let pointer: OpaquePointer
  /// Set by ``hear``; libpq keeps its address.
  private let hasUnreplicatedCommit: UnsafeMutablePointer<Bool>

  private init(adopting pointer: OpaquePointer) {
    unsafe self.pointer = unsafe pointer
    unsafe hasUnreplicatedCommit = .allocate(capacity: 1)
    unsafe hasUnreplicatedCommit.initialize(to: false)
  }

  deinit {
    unsafe PQfinish(pointer)
    unsafe hasUnreplicatedCommit.deallocate()
  }

  /// Connects, blocking the thread; fails with ``PostgresError/Code/connectionFailed``.
  static func connect(_ parameters: [(name: String, value: String)]) throws(PostgresError) -> Self {
    let handle = open(parameters)
    guard handle.isUsable else { throw PostgresError(.connectionFailed, handle.errorMessage) }
    guard unsafe PQsetnonblocking(handle.pointer, 1) == 0,
      unsafe PQenterPipelineMode(handle.pointer) == 1
    else {
      throw PostgresError(.connectionFailed, handle.errorMessage)
    }
    unsafe PQsetNoticeReceiver(handle.pointer, hear, handle.hasUnreplicatedCommit)
    return handle
  }

  /// Handles the notice that a commit stopped waiting for its synchronous standbys.
  ///
  /// The server confirms such a commit, though it can be lost. The notice has no error code and is
  /// recognized by its C function. Others are dropped: libpq would print the values that they
  /// quote.
  private static let hear: PQnoticeReceiver = { flag, notice in
    let function = unsafe PQresultErrorField(notice, Int32(UInt8(ascii: "R")))
    guard let function = unsafe function, let flag = unsafe flag,
      unsafe String(cString: function) == "SyncRepWaitForLSN"
    else { return }
    unsafe flag.assumingMemoryBound(to: Bool.self).pointee = true
  }

  /// Whether, since the last call, a commit may not have reached the synchronous standbys.
  func takeUnreplicatedCommit() -> Bool {
    defer { unsafe hasUnreplicatedCommit.pointee = false }
    return unsafe hasUnreplicatedCommit.pointee
  }

  private static func open(_ parameters: [(name: String, value: String)]) -> Self {
    // Each list ends with a null pointer.
    let names = unsafe parameters.map { unsafe strdup($0.name) } + [nil]
    let values = unsafe parameters.map { unsafe strdup($0.value) } + [nil]
    defer { unsafe (names + values).forEach { unsafe free($0) } }
    let pointer = unsafe PQconnectdbParams(
      names.map { unsafe UnsafePointer($0) }, values.map { unsafe UnsafePointer($0) }, 1)
    guard let pointer = unsafe pointer else { preconditionFailure("libpq is out of memory.") }
    return unsafe Self(adopting: pointer)
  }

  var isUsable: Bool { unsafe PQstatus(pointer) == CONNECTION_OK }
  var descriptor: Int32 { unsafe PQsocket(pointer) }
  var processID: Int32 { unsafe PQbackendPID(pointer) }
  var usesTLS: Bool { unsafe PQsslInUse(pointer) != 0 }

  /// The connected server's host, address and port, which identify it among those in the URI.
  var server: [String] {
    unsafe [
      String(cString: PQhost(pointer)), String(cString: PQhostaddr(pointer)),
      String(cString: PQport(pointer)),
    ]
  }

  /// Whether the URI asks for a server that takes writes.
  var followsPrimary: Bool {
    let options = unsafe PQconninfo(pointer)
    defer { unsafe PQconninfoFree(options) }
    var next = unsafe options
    while let option = unsafe next, let keyword = unsafe option.pointee.keyword {
      if unsafe String(cString: keyword) == "target_session_attrs" {
        guard let value = unsafe option.pointee.val else { return false }
        return unsafe ["read-write", "primary"].contains(String(cString: value))
      }
      unsafe next = option + 1
    }
    return false
  }

  /// libpq's last error, on one line; it contains hosts and users, but no passwords or values.
  var errorMessage: String {
    let text = unsafe String(cString: PQerrorMessage(pointer))
    // Lines that begin with a tab only suggest causes.
    let lines = text.split(separator: "\n").filter { !$0.hasPrefix("\t") }
    return lines.flatMap { $0.split(whereSeparator: \.isWhitespace) }.joined(separator: " ")
  }

  var isIdle: Bool { unsafe PQtransactionStatus(pointer) == PQTRANS_IDLE }

  // MARK: Reading

  func consumeInput() -> Bool { unsafe PQconsumeInput(pointer) == 1 }

  var isBusy: Bool { unsafe PQisBusy(pointer) == 1 }

  func nextResult() -> ResultHandle? {
    guard let result = unsafe PQgetResult(pointer) else { return nil }
    return unsafe ResultHandle(adopting: result)
  }

  func nextNotification() -> Notification? {
    guard let notify = unsafe PQnotifies(pointer) else { return nil }
    defer { unsafe PQfreemem(notify) }
    return unsafe Notification(
      channel: String(cString: notify.pointee.relname),
      payload: String(cString: notify.pointee.extra), processID: notify.pointee.be_pid)
  }

  // MARK: Writing

  enum Flushed { case everything, partly, failed }

  func flush() -> Flushed {
    switch unsafe PQflush(pointer) {
    case 0: .everything
    case 1: .partly
    default: .failed
    }
  }

  func sync() -> Bool { unsafe tenure_pipeline_sync(pointer) == 1 }

  func prepare(_ sql: SQL, name: String) -> Bool {
    unsafe sql.withTypes { types in
      unsafe PQsendPrepare(pointer, name, sql.text, Int32(sql.parameters.count), types) == 1
    }
  }

  func execute(_ sql: SQL, name: String) -> Bool {
    unsafe sql.withValues { values, lengths, formats in
      unsafe PQsendQueryPrepared(
        pointer, name, Int32(sql.parameters.count), values, lengths, formats, 1) == 1
    }
  }

  func executeUnnamed(_ sql: SQL) -> Bool {
    unsafe sql.withTypes { types in
      unsafe sql.withValues { values, lengths, formats in
        unsafe PQsendQueryParams(
          pointer, sql.text, Int32(sql.parameters.count), types, values, lengths, formats, 1) == 1
      }
    }
  }

  func makeCancellation() -> Cancellation? {
    guard let cancel = unsafe PQgetCancel(pointer) else { return nil }
    return unsafe Cancellation(adopting: cancel)
  }
}
