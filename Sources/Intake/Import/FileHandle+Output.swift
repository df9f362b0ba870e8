import Foundation
import SystemPackage

extension FileHandle {
  /// Opens a file for writing from its beginning, or makes it.
  ///
  /// A device, a pipe or a link stays what it is: `FileManager.createFile` would put a file in its
  /// place, also in that of `/dev/null`.
  ///
  /// - Parameter path: Where; what is there is replaced.
  /// - Throws: ``FileFault``.
  convenience init(replacingContentsOf path: String) throws {
    do {
      let file = try FileDescriptor.open(
        FilePath(path), .writeOnly, options: [.create, .truncate, .closeOnExec],
        permissions: [.ownerReadWrite, .groupReadWrite, .otherReadWrite])
      self.init(fileDescriptor: file.rawValue, closeOnDealloc: true)
    } catch let error as Errno {
      throw FileFault(description: "\(path) can't be written: \(error).")
    }
  }
}
