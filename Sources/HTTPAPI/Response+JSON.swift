package import HTTPTypes
import Hummingbird
package import JSONText

extension Response {
  /// A JSON response; `capacity` is its estimated size in bytes.
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
