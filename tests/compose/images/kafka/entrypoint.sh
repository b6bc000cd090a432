#!/usr/bin/env bash
# Writes the configuration from KAFKA_* variables and formats the storage, as the official image does, then becomes Kafka.
set -euo pipefail
export CLUSTER_ID=${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}
libs='/opt/kafka/libs/*'
# on the second start the storage is formatted already, which the wrapper reports as a failure
setup=$(java -Xmx256m -XX:TieredStopAtLevel=1 -cp "$libs" kafka.docker.KafkaDockerWrapper setup \
  --default-configs-dir /etc/kafka/docker --mounted-configs-dir /mnt/shared/config \
  --final-configs-dir /opt/kafka/config 2>&1) || grep -q 'already formatted' <<<"$setup" || { echo "$setup" >&2; exit 1; }
# shellcheck disable=SC2086  # the variables hold several options
exec java ${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G} ${KAFKA_OPTS:-} -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml \
  -Dkafka.logs.dir=/opt/kafka/logs -cp "$libs" kafka.Kafka /opt/kafka/config/server.properties
