import HTTPTypes
import Hummingbird
import NIOCore
import ServiceLifecycle

#if canImport(Darwin)
  import Darwin
#elseif canImport(Musl)
  import Musl
#else
  import Glibc
#endif

/// Sends a response to the client, or fails below HTTP as the response requires.
struct AnswerDelivery {
  let longestSilence: Duration

  func deliver(_ answer: SimulatedAnswer, to request: Request, on channel: any Channel)
    async throws -> Response
  {
    if answer.delay > .zero { try await wait(answer.delay) }
    switch answer.delivery {
    case .whole:
      return response(answer, body: ResponseBody(byteBuffer: ByteBuffer(bytes: answer.body)))
    case .cutOff(let bytes):
      let part = ByteBuffer(bytes: answer.body.prefix(bytes))
      return response(
        answer,
        body: ResponseBody(contentLength: answer.body.count) { writer in
          try await writer.write(part)
          throw ConnectionFault()
        })
    case .never:
      // Ends with the client's timeout, or after `longestSilence`.
      let longestSilence = longestSilence
      try? await request.body.consumeWithCancellationOnInboundClose { _ in
        try await Self.wait(longestSilence)
      }
      try? await channel.close()
      throw ConnectionFault()
    case .reset:
      // Closing with a linger time of zero sends RST instead of FIN.
      if let options = channel as? any SocketOptionProvider {
        try await options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).get()
      }
      try await channel.close()
      throw ConnectionFault()
    }
  }

  /// The connection was closed on purpose; nothing more can be written.
  private struct ConnectionFault: Error {}

  private func wait(_ duration: Duration) async throws { try await Self.wait(duration) }

  private static func wait(_ duration: Duration) async throws {
    try await cancelWhenGracefulShutdown { try await Task.sleep(for: duration) }
  }

  private func response(_ answer: SimulatedAnswer, body: ResponseBody) -> Response {
    var headers = HTTPFields()
    headers[.contentType] = answer.contentType
    if let retryAfter = answer.retryAfter { headers[.retryAfter] = retryAfter }
    return Response(
      status: HTTPResponse.Status(code: answer.httpStatus), headers: headers, body: body)
  }
}
