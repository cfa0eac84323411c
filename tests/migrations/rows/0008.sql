UPDATE ApiKey SET tenant = 'shop', calls_per_second = 100, bytes_per_second = 1000000;
