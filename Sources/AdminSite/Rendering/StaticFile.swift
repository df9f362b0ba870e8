import Crypto
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import NIOCore
import Subscriptions

/// The style sheet, script and icon; browsers cache them for a year by the hash in their URLs.
struct StaticFile: Sendable {
  static let styleSheet = StaticFile(
    "/admin/admin.css", PackageResources.admin_css, "text/css; charset=utf-8")
  static let script = StaticFile(
    "/admin/admin.js", PackageResources.admin_js, "text/javascript; charset=utf-8")
  static let icon = StaticFile("/admin/icon.svg", PackageResources.icon_svg, "image/svg+xml")
  static let all = [styleSheet, script, icon]
  /// The paths that need no session.
  static let paths = Set(all.map { ExactText($0.path) })

  let path: String
  private let body: ByteBuffer
  private let mediaType: String
  /// A hash of the content.
  private let version: String

  private init(_ path: String, _ bytes: [UInt8], _ mediaType: String) {
    self.path = path
    body = ByteBuffer(bytes: bytes)
    self.mediaType = mediaType
    version = Base64.encode(url: SHA256.hash(data: bytes).prefix(12))
  }

  /// The URL of this version.
  var href: String { "\(path)?v=\(version)" }

  private var tag: String { "\"\(version)\"" }

  @Sendable
  func serve(_ request: Request, context: APIContext) async throws -> Response {
    let isNamed = EncodedFields(query: request.uri)["v"] == ExactText(version)
    let headers: HTTPFields = [
      .contentType: mediaType, .eTag: tag,
      .cacheControl: isNamed ? "public, max-age=31536000, immutable" : "no-cache",
    ]
    if request.headers[.ifNoneMatch].map({ $0.isASCII && ($0 == "*" || $0.contains(tag)) }) ?? false
    {
      return Response(status: .notModified, headers: headers)
    }
    return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: body))
  }
}
