import HTTPTypes
import Hummingbird
import NIOCore

/// The description of this interface that tools read: `Resources/openapi.yaml`, built in.
enum OpenAPIDocument {
  static let text = String(decoding: PackageResources.openapi_yaml, as: UTF8.self)
  /// Shared by all answers: a copy for each would be what readers that never read fill memory with.
  private static let body = ByteBuffer(string: text)

  @Sendable
  static func serve(_ request: Request, context: APIContext) async throws -> Response {
    Response(
      status: .ok, headers: [.contentType: "application/yaml"],
      body: ResponseBody(byteBuffer: body))
  }
}
