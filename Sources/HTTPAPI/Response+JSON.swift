package import HTTPTypes
import Hummingbird
package import JSONText

extension Response {
  /// Makes an answer of JSON.
  ///
  /// - Parameters:
  ///   - json: What is answered.
  ///   - status: The status.
  ///   - mediaType: JSON, or a more particular kind of it.
  ///   - headers: Further header fields.
  ///   - capacity: About how many bytes the answer has.
  package init(
    _ json: some JSONWritable, status: HTTPResponse.Status = .ok,
    mediaType: String = "application/json", headers: HTTPFields = [:], capacity: Int = 512
  ) {
    var writer = JSONWriter(capacity: capacity)
    json.write(to: &writer)
    var headers = headers
    headers.append(HTTPField(name: .contentType, value: mediaType))
    self.init(
      status: status, headers: headers,
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: writer.bytes)))
  }
}
