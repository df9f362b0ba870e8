internal import CLibpq

/// The only owner of one of libpq's connections: closes it at its end.
///
/// Each method is one call of libpq, or one and its error. It may move to another thread, since
/// nobody else has it, but is not to be used by two at once.
@safe
struct ConnectionHandle: ~Copyable, @unchecked Sendable {
  private let pointer: OpaquePointer
  /// Set by ``hear``; libpq has its address.
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

  /// Connects, blocking the thread.
  ///
  /// - Throws: ``PostgresError/Code/connectionFailed`` with libpq's reason.
  static func connect(_ parameters: [(name: String, value: String)]) throws(PostgresError) -> Self {
    let handle = open(parameters)
    guard handle.isUsable else { throw PostgresError(.connectionFailed, handle.errorMessage) }
    guard unsafe PQsetnonblocking(handle.pointer, 1) == 0, handle.enterPipeline() else {
      throw PostgresError(.connectionFailed, handle.errorMessage)
    }
    unsafe PQsetNoticeReceiver(handle.pointer, hear, handle.hasUnreplicatedCommit)
    return handle
  }

  /// Takes notices, of which one matters: that a commit was made to wait no longer for the standbys
  /// that should have it first.
  ///
  /// The server goes on to confirm such a commit, though it can be lost with this one server. The
  /// notice has no code of its own; the function of the server's source that reports it tells it.
  /// The others are dropped: they may quote values, and libpq would print them.
  private static let hear: PQnoticeReceiver = { flag, notice in
    let function = unsafe PQresultErrorField(notice, Int32(UInt8(ascii: "R")))
    guard let function = unsafe function, let flag = unsafe flag,
      unsafe String(cString: function) == "SyncRepWaitForLSN"
    else { return }
    unsafe flag.assumingMemoryBound(to: Bool.self).pointee = true
  }

  /// Whether something was committed since this was last asked that the synchronous standbys may
  /// not have.
  func takeUnreplicatedCommit() -> Bool {
    defer { unsafe hasUnreplicatedCommit.pointee = false }
    return unsafe hasUnreplicatedCommit.pointee
  }

  private static func open(_ parameters: [(name: String, value: String)]) -> Self {
    let names = CStrings(parameters.map(\.name))
    let values = CStrings(parameters.map(\.value))
    let pointer = unsafe names.withPointers { names in
      unsafe values.withPointers { values in unsafe PQconnectdbParams(names, values, 1) }
    }
    guard let pointer = unsafe pointer else { preconditionFailure("libpq is out of memory.") }
    return unsafe Self(adopting: pointer)
  }

  var isUsable: Bool { unsafe PQstatus(pointer) == CONNECTION_OK }
  var descriptor: Int32 { unsafe PQsocket(pointer) }
  var processID: Int32 { unsafe PQbackendPID(pointer) }
  var usesTLS: Bool { unsafe PQsslInUse(pointer) != 0 }

  /// The server at the other end, as one of those that the URI can lead to.
  var server: ServerName {
    unsafe ServerName(
      host: String(cString: PQhost(pointer)), address: String(cString: PQhostaddr(pointer)),
      port: String(cString: PQport(pointer)))
  }

  /// Whether the URI asks for the one server, of those that it can lead to, that takes writes.
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

  /// libpq's last error on this connection, on one line; it names hosts and users, never a password
  /// or a value.
  var errorMessage: String {
    let text = unsafe String(cString: PQerrorMessage(pointer))
    // Lines that begin with a tab only guess at causes.
    let lines = text.split(separator: "\n").filter { !$0.hasPrefix("\t") }
    return lines.flatMap { $0.split(whereSeparator: \.isWhitespace) }.joined(separator: " ")
  }

  /// Whether the server has answered everything and is in no transaction.
  var isIdle: Bool { unsafe PQtransactionStatus(pointer) == PQTRANS_IDLE }

  // MARK: Reading

  func consumeInput() -> Bool { unsafe PQconsumeInput(pointer) == 1 }

  /// Whether the next result has not arrived completely.
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
      payload: String(cString: notify.pointee.extra),
      processID: notify.pointee.be_pid)
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

  func enterPipeline() -> Bool { unsafe PQenterPipelineMode(pointer) == 1 }
  func exitPipeline() -> Bool { unsafe PQexitPipelineMode(pointer) == 1 }
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

  /// Sends one or more statements in the simple protocol; only outside of the pipeline.
  func executeScript(_ text: String) -> Bool { unsafe PQsendQuery(pointer, text) == 1 }

  /// Sends a piece of COPY data; nil when libpq has no room for it until something was flushed.
  func putCopyData(_ bytes: [UInt8]) -> Bool? {
    let sent = unsafe bytes.withUnsafeBytes { bytes in
      unsafe PQputCopyData(
        pointer, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(bytes.count))
    }
    return sent == 0 ? nil : sent == 1
  }

  /// Ends COPY; with a reason the server discards what was sent.
  func putCopyEnd(aborting reason: String?) -> Bool {
    if let reason { return unsafe PQputCopyEnd(pointer, reason) == 1 }
    return unsafe PQputCopyEnd(pointer, nil) == 1
  }

  /// What is needed to cancel this connection's statement from another thread.
  func makeCancellation() -> Cancellation? {
    guard let cancel = unsafe PQgetCancel(pointer) else { return nil }
    return unsafe Cancellation(adopting: cancel)
  }
}

/// What tells one server from another where a URI can lead to several.
struct ServerName: Hashable, Sendable {
  let host: String
  /// A name may have several.
  let address: String
  let port: String
}

/// Strings as C functions take a list of them: an array of pointers, closed by a null pointer.
struct CStrings {
  private let bytes: [CChar]
  private let offsets: [Int]

  init(_ strings: [String]) {
    var bytes: [CChar] = []
    var offsets: [Int] = []
    for string in strings {
      offsets.append(bytes.count)
      bytes.append(contentsOf: string.utf8CString)
    }
    self.bytes = bytes
    self.offsets = offsets
  }

  func withPointers<T>(_ body: (UnsafePointer<UnsafePointer<CChar>?>?) -> T) -> T {
    unsafe bytes.withUnsafeBufferPointer { bytes in
      var pointers: [UnsafePointer<CChar>?] = unsafe []
      for offset in offsets { unsafe pointers.append(bytes.extracting(offset...).baseAddress) }
      unsafe pointers.append(nil)
      return unsafe pointers.withUnsafeBufferPointer { unsafe body($0.baseAddress) }
    }
  }
}
