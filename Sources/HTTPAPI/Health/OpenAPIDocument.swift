import HTTPTypes
import Hummingbird

/// The description of this interface that tools read: `Resources/openapi.yaml`, built in.
enum OpenAPIDocument {
  static let text = String(decoding: PackageResources.openapi_yaml, as: UTF8.self)

  @Sendable
  static func serve(_ request: Request, context: APIContext) async throws -> Response {
    Response(
      status: .ok, headers: [.contentType: "application/yaml"],
      body: ResponseBody(byteBuffer: ByteBuffer(string: text)))
  }
}
