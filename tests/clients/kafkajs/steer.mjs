// Lets a test steer a Kafka client: a line on stdin is an order, JSON lines on stdout say what happened (../steered.py).

import { createInterface } from 'node:readline'

/** One line: a name, and settings as name=value; with the records to send below it. */
export class Order {
  constructor(line) {
    const [name, ...words] = line.split(' ')
    this.name = name
    this.settings = new Map(words.map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]))
    this.records = []
    this.stop = new AbortController()
  }

  has(setting) {
    return this.settings.has(setting)
  }

  text(setting) {
    if (!this.settings.has(setting)) throw new Error(`${this.name}: ${setting} is missing`)
    return this.settings.get(setting)
  }

  list(setting) {
    return this.text(setting).split(',')
  }

  number(setting, otherwise) {
    return this.has(setting) ? Number(this.settings.get(setting)) : otherwise
  }

  get stopped() {
    return this.stop.signal.aborted
  }
}

export function tell(line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

export function tellError(at, error) {
  tell({ error: String(error), at })
}

/** Carries out one order after the other, until stdin ends. */
export async function serve(carryOut) {
  let underWay = null
  let missingRecords = 0
  for await (const line of createInterface({ input: process.stdin })) {
    if (missingRecords > 0) {
      underWay.records.push(parseRecord(underWay.records.length, line))
      missingRecords -= 1
    } else if (underWay !== null) {
      underWay.stop.abort()
      continue
    } else if (line === 'stop') {
      continue // what was to be stopped has ended by itself
    } else {
      underWay = new Order(line)
      missingRecords = underWay.number('records', 0)
    }
    if (missingRecords === 0) {
      const order = underWay
      carryOut(order)
        .then((answer) => ({ done: answer }), (error) => ({ failed: String(error) }))
        .then((end) => {
          underWay = null // before it is told: the next order may follow at once
          tell(end)
        })
    }
  }
  underWay?.stop.abort()
}

function parseRecord(number, line) {
  const [topic, key, value, timestamp, headers] = line.split('\t')
  return {
    id: String(number),
    topic,
    message: {
      key: text(key),
      value: text(value),
      ...(timestamp === '-' ? {} : { timestamp }),
      headers: headers === '-' ? {} : Object.fromEntries(headers.split(',').map((pair) => pair.split('.').map(text))),
    },
  }
}

function text(base64) {
  return base64 === '-' ? null : Buffer.from(base64, 'base64').toString()
}
