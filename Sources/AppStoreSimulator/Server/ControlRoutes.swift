import AppStore
import HTTPTypes
import Hummingbird
import JSONText
import NIOCore

import Foundation

/// The control interface over HTTP: `ControlAction` says what there is.
struct ControlRoutes {
  let simulation: AppStoreSimulation

  private static let mostBodyBytes = 1 << 20

  var endpoints: RouteCollection<SimulatorContext> {
    let routes = RouteCollection(context: SimulatorContext.self)
    routes.get { _, _ in ControlAction.help }
    for action in ControlAction.all {
      let path = RouterPath(action.name)
      if action.isQuestion {
        routes.get(path) { request, _ in
          respond { try perform(action, ControlRequest(query: request.decodedQuery)) }
        }
      } else {
        routes.post(path) { request, _ in
          let body = try await request.body.collect(upTo: Self.mostBodyBytes)
          return respond {
            try perform(action, try ControlRequest(body: body.readableBytesView))
          }
        }
      }
    }
    return routes
  }

  private func perform(_ action: ControlAction, _ request: ControlRequest) throws -> JSONValue {
    try request.check(allowed: action.fieldNames)
    return try action.perform(simulation, request)
  }

  /// Turns what cannot be done into 400 with a reason.
  private func respond(_ work: () throws -> JSONValue) -> Response {
    do {
      return response(.ok, try work())
    } catch let error as SimulationError {
      return response(
        .badRequest,
        ["error": .string(error.code.rawValue), "detail": .string(error.description)])
    } catch let fault as ControlRequest.Fault {
      return response(
        .badRequest, ["error": "invalid_request", "detail": .string(fault.detail)])
    } catch {
      return response(
        .internalServerError,
        ["error": "internal_error", "detail": .string(String(describing: error))])
    }
  }

  private func response(_ status: HTTPResponse.Status, _ json: JSONValue) -> Response {
    Response(
      status: status, headers: [.contentType: "application/json"],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: json.bytes + [UInt8(ascii: "\n")])))
  }
}

extension Request {
  /// What stands behind the question mark, in its order.
  var decodedQuery: [(key: String, value: String)] {
    uri.queryParameters.map { key, value in
      (key: String(key), value: value.removingPercentEncoding ?? String(value))
    }
  }
}
