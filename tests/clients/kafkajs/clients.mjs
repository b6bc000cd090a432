// KafkaJS behind the orders of the tests: "node clients.mjs BOOTSTRAP".

import { setTimeout as pause } from 'node:timers/promises'
import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import { serve, tell, tellError } from './steer.mjs'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec

const ACKS = { 0: 0, 1: 1, all: -1 }
const COMPRESSIONS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const COMMIT_EVERY_MS = 500
const FETCH_WAIT_MS = 500 // with the library's own 5 s a reader notices a move of its topic as late
const SEND_EVERY_MS = 20 // made-up records that are due by then go as one batch

const [address, login] = process.argv[2].split('@').reverse() // of USER:PASSWORD@HOST:PORT, or HOST:PORT
const [username, password] = (login ?? '').split(':')
const kafka = new Kafka({
  brokers: [address],
  ...(login && { sasl: { mechanism: 'scram-sha-256', username, password } }),
  logLevel: logLevel.WARN,
  logCreator: () => ({ namespace, log }) => console.error(namespace, log.message, log.error ?? ''), // stdout is ours
})
let admin = null

/** Notes where each message goes: the library answers with the first offset of each partition. */
function notingPartitioner(partitions) {
  return () => {
    const choose = Partitioners.DefaultPartitioner()
    return (choice) => {
      const partition = choose(choice)
      partitions.set(choice.message, partition)
      return partition
    }
  }
}

async function produce(order) {
  const partitions = new Map()
  const producer = kafka.producer({
    idempotent: order.text('idempotent') === 'true',
    createPartitioner: notingPartitioner(partitions),
  })
  await producer.connect()
  try {
    if (order.records.length > 0) await send(producer, partitions, order, order.records)
    if (order.has('ids')) await sendMadeUp(producer, partitions, order)
  } finally {
    await producer.disconnect()
  }
  return true
}

async function sendMadeUp(producer, partitions, order) {
  const topics = order.list('topics')
  const rate = order.number('rate', 100)
  const start = Date.now()
  let sent = 0
  while (!order.stopped) {
    const due = []
    for (; sent < ((Date.now() - start) * rate) / 1000; sent++) {
      const id = `${order.text('ids')}-${sent}`
      const key = `key-${sent % order.number('keys', 16)}`
      due.push({ id, topic: topics[sent % topics.length], message: { key, value: id } })
    }
    if (due.length > 0) await send(producer, partitions, order, due)
    await pause(SEND_EVERY_MS)
  }
}

async function send(producer, partitions, order, records) {
  const topicMessages = [...grouped(records)].map(([topic, of]) => ({ topic, messages: of.map((record) => record.message) }))
  const acks = ACKS[order.text('acks')]
  let answers
  try {
    answers = await producer.sendBatch({ acks, compression: COMPRESSIONS[order.text('compression')], topicMessages })
  } catch (error) {
    tellError('produce', error)
    return
  }
  const next = new Map(answers?.map((each) => [`${each.topicName}-${each.partition}`, BigInt(each.baseOffset)]))
  for (const record of records) {
    const partition = partitions.get(record.message)
    const place = `${record.topic}-${partition}`
    const offset = next.get(place) ?? -1n
    next.set(place, offset + 1n)
    tell({ acked: record.id, topic: record.topic, partition, offset: Number(offset) })
  }
  partitions.clear()
}

function grouped(records) {
  const byTopic = new Map()
  for (const record of records) byTopic.set(record.topic, [...(byTopic.get(record.topic) ?? []), record])
  return byTopic
}

async function consume(order) {
  const consumer = kafka.consumer({
    groupId: order.text('group'),
    maxWaitTimeInMs: FETCH_WAIT_MS,
    readUncommitted: order.text('isolation') !== 'read_committed',
  })
  const positions = new Map()
  const commit = async () => {
    const offsets = [...positions.values()]
    positions.clear()
    if (offsets.length > 0) await consumer.commitOffsets(offsets)
  }
  let left = order.number('count', Infinity)
  await consumer.connect()
  const topics = order.has('pattern') ? [new RegExp(order.text('pattern'))] : order.list('topics')
  await consumer.subscribe({ topics, fromBeginning: true })
  await new Promise((ended, failed) => {
    order.stop.signal.addEventListener('abort', ended)
    consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error))
    let commitDue = Date.now() + COMMIT_EVERY_MS
    const eachMessage = async ({ topic, partition, message }) => {
      if (left === 0 || order.stopped) return
      tell(received(topic, partition, message))
      positions.set(`${topic}-${partition}`, { topic, partition, offset: String(BigInt(message.offset) + 1n) })
      left -= 1
      if (left === 0) await commit().then(ended, failed)
      else if (!order.has('count') && Date.now() >= commitDue) {
        await commit()
        commitDue = Date.now() + COMMIT_EVERY_MS
      }
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(failed)
  }).finally(() => consumer.disconnect())
  return true
}

/** Reads the order's count of records in a group, and writes each to every topic, with the offsets, in one transaction. */
async function copy(order) {
  const groupId = order.text('group')
  const messages = []
  const ends = new Map()
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: FETCH_WAIT_MS })
  await consumer.connect()
  await consumer.subscribe({ topics: [order.text('source')], fromBeginning: true })
  await new Promise((ended, failed) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error))
    const eachMessage = async ({ partition, message }) => {
      if (messages.length === order.number('count', 0)) return
      messages.push({ key: message.key, value: message.value })
      ends.set(partition, String(BigInt(message.offset) + 1n))
      if (messages.length === order.number('count', 0)) ended()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(failed)
  }).finally(() => consumer.disconnect())
  const producer = kafka.producer({ transactionalId: order.text('id'), idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    const transaction = await producer.transaction()
    await transaction.sendBatch({ topicMessages: order.list('topics').map((topic) => ({ topic, messages })) })
    const partitions = [...ends].map(([partition, offset]) => ({ partition, offset }))
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: order.text('source'), partitions }] })
    await (order.text('commits') === 'true' ? transaction.commit() : transaction.abort())
  } finally {
    await producer.disconnect()
  }
  return true
}

function received(topic, partition, message) {
  const headers = Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)])
  return {
    received: String(message.value),
    topic,
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: message.key === null ? null : String(message.key),
    headers: Object.fromEntries(headers),
  }
}

const questions = {
  'create-topic': async (order) => {
    const numPartitions = order.number('partitions', 1)
    await admin.createTopics({ topics: [{ topic: order.text('topic'), numPartitions, replicationFactor: -1 }] })
    return true
  },
  'delete-topic': async (order) => {
    await admin.deleteTopics({ topics: order.list('topic') })
    return true
  },
  topics: () => admin.listTopics(),
  partitions: async (order) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: order.list('topic') })
    return topics[0].partitions.length
  },
  'topic-config': async (order) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: order.text('topic') }]
    const described = await admin.describeConfigs({ resources, includeSynonyms: false })
    return Object.fromEntries(described.resources[0].configEntries.map((each) => [each.configName, each.configValue]))
  },
  brokers: async () => (await admin.describeCluster()).brokers.map(({ host, port }) => `${host}:${port}`),
  groups: async () => (await admin.listGroups()).groups.map((group) => group.groupId),
  committed: async (order) => {
    const found = await admin.fetchOffsets({ groupId: order.text('group'), topics: order.list('topics') })
    const offsets = found.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, offset }) => [`${topic}-${partition}`, Number(offset)]),
    )
    return Object.fromEntries(offsets.filter(([, offset]) => offset >= 0))
  },
}

async function carryOut(order) {
  if (order.name === 'produce') return produce(order)
  if (order.name === 'consume') return consume(order)
  if (order.name === 'copy') return copy(order)
  const question = questions[order.name]
  if (question === undefined) throw new Error(`no such order: ${order.name}`)
  if (admin === null) {
    // Its own 5 retries are for 9 s of waiting where a topic is not there.
    admin = kafka.admin({ retry: { retries: 2 } })
    await admin.connect()
  }
  return question(order)
}

await serve(carryOut)
await admin?.disconnect()
