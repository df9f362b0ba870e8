import Foundation

/// The right to start or initialise a server in a directory: one process at a time has it.
struct DirectoryLock: Sendable {
  private let file: FileHandle

  /// Gives the right to whoever waits for it.
  func release() {
    flock(file.fileDescriptor, LOCK_UN)
    try? file.close()
  }

  fileprivate static func tryLocking(_ path: String) throws -> DirectoryLock? {
    let file = try FileHandle(forUpdating: URL(filePath: path))
    if flock(file.fileDescriptor, LOCK_EX | LOCK_NB) == 0 { return DirectoryLock(file: file) }
    try file.close()
    return nil
  }
}

extension ServerDirectory {
  /// Waits until nobody else is starting or stopping the server, and keeps others from it.
  ///
  /// Watchdogs of running processes hold the same lock shared; so this asks for it until they have
  /// let it go, or until there is a server to join.
  func lock() async throws -> DirectoryLock {
    let startFile = "\(path)/starting"
    for name in [startFile, lockFile] where !FileManager.default.fileExists(atPath: name) {
      _ = FileManager.default.createFile(atPath: name, contents: nil)
    }
    let end = ContinuousClock.now + PrivatePostgres.startLimit
    while ContinuousClock.now < end {
      if let lock = try DirectoryLock.tryLocking(startFile) { return lock }
      try await Task.sleep(for: PrivatePostgres.pollInterval)
    }
    throw PrivatePostgresError.directoryIsBusy(path: path)
  }
}
