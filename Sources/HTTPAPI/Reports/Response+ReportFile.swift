import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Reports

extension Response {
  /// A report as a file, which is sent while it is read.
  ///
  /// What can't be sent to its end is no file: the connection is closed then, without the mark
  /// that ends a body, so that nobody takes it for all there is.
  ///
  /// - Parameters:
  ///   - file: The file, of which nothing has been sent.
  ///   - name: What a browser calls it; nil: it is not for a browser.
  ///   - logger: Told when there is no end.
  init(_ file: ReportFile, named name: String? = nil, logger: Logger) {
    let body = ResponseBody { writer in
      do {
        try await writer.write(ByteBuffer(string: file.head))
        while let lines = try await file.lines(logger) {
          try await writer.write(ByteBuffer(string: lines))
        }
      } catch {
        await file.close()
        throw error
      }
      try await writer.finish(nil)
    }
    self.init(
      status: .ok, headers: [.contentType: ReportController.csvType], body: body)
    if let name { headers[.contentDisposition] = "attachment; filename=\"\(name)\"" }
  }
}

extension ReportFile {
  /// The next lines; that the client went away is nothing to be logged, and that this fails is.
  fileprivate func lines(_ logger: Logger) async throws -> String? {
    do {
      return try await next()
    } catch {
      logger.error("A report broke off while it was sent", metadata: ["error": "\(error)"])
      throw error
    }
  }
}
