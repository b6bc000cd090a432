// A backend beside a sidecar of Kafka Mesh. The sidecar posts orders in batches; each order gets a result.
const http = require('node:http');

function resultOf({ key, value }) {
  const total = value?.price * value?.count;
  if (Number.isNaN(total)) {
    return { status: 'DEAD_LETTER', stacktrace: 'an order needs a price and a count' };
  }
  console.log(`${key} pays ${total}`);
  return { status: 'SUCCESS' };
}

http
  .createServer(async (request, response) => {
    let body = '';
    for await (const piece of request.setEncoding('utf8')) body += piece;
    const isDelivery = request.method === 'POST'; // to /kafka/records; else a GET of /health
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(isDelivery ? { results: JSON.parse(body).map(resultOf) } : {}));
  })
  .listen(8081, '127.0.0.1');
